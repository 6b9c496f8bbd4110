"""What it costs that a run of an agent survives, beside LangGraph on its Postgres checkpointer and Pydantic AI on DBOS.

    python benchmarks/agents.py [--quick] [--json] [--first-delta] [--streams 500] [--parked 10000]

All ask one local model over HTTP, on one Postgres, in turns. docs/performance.md says what is measured. Exits with 2 if
the machine lacks a package.
"""

from __future__ import annotations

import os
import sys

from placet.testing.port import free_port

# The folder of this file has a `queue` that is not Python's.
sys.path.pop(0)
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import store
from benchmarks.agent_parked import parked
from benchmarks.agent_shapes import (
    ANSWER,
    CALLS,
    CALLS_,
    PACED,
    SHAPES,
    SPOKEN,
    TURNS,
    TURNS_,
    WAITS,
)
from benchmarks.agent_streams import PLACET, STREAMED, first_deltas, streams
from benchmarks.bench import say
from benchmarks.contenders import HERE, Placet
from benchmarks.load import LoadFailed, Unfit
from benchmarks.processes import Child, StartFailed, cpu_seconds
from placet_server.embedded.error import EmbeddedError
from placet_server.embedded.server import EmbeddedPostgres

BARE = "bare"
# LangGraph with LangChain's model, and with the provider's client alone.
LANGGRAPH, LEAN, DBOS = "langgraph", "langgraph_client", "dbos"
PEERS = (LANGGRAPH, LEAN, DBOS)
LEVELS = (1, 16)

Costs = dict[str, float]
# Short runs are repeated more often: CPU is told in hundredths of a second.
TIMES = {ANSWER: 8, TURNS_: 2, CALLS_: 1}


class OurServer(Placet):
    """With agents, and the model that all ask."""

    def __init__(self, *, folder: Path, dsn: str, model_url: str) -> None:
        super().__init__(processes=1, folder=folder, name=PLACET, dsn=dsn)
        models = [
            f'[models.{shape}]\nkind = "openai_compatible"\nmodel = "{shape}"\nbase_url = "{model_url}"\n'
            for shape in (*SHAPES, WAITS, SPOKEN, PACED)
        ]
        self._models_file = self.folder / "models.toml"
        self._models_file.write_text("\n".join(models))

    def _environment(self, number: int) -> dict[str, str]:
        return super()._environment(number) | {
            "PLACET_APP": "benchmarks.agent_app:app",
            "PLACET_MODEL_FILE": str(self._models_file),
        }


class Lane:
    """A process that runs agents as it is told."""

    def __init__(self, stack: ExitStack, script: str, *arguments: str) -> None:
        self._script = script
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        stack.enter_context(self._log)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "servers" / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.pid = self._process.pid
        stack.callback(self._stop)
        if self._line() != "ready":
            raise StartFailed(f"{script}: {self._errors()}")

    def seconds(self, shape: str, level: int, count: int) -> float:
        """Of one run, as they follow each other. Raises LoadFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"shape": shape, "level": level, "count": count}) + "\n")
        self._process.stdin.flush()
        try:
            return float(self._line()) / count
        except ValueError:
            raise LoadFailed(f"{self._script}: {self._errors()}") from None

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _errors(self) -> str:
        self._process.wait(10.0)
        self._log.seek(0)
        return self._log.read()[-3000:].decode(errors="replace")

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Raises StartFailed, LoadFailed, EmbeddedError."""
    with ExitStack() as stack:
        postgres = store.start(folder, arguments.programs)
        stack.callback(postgres.stop)
        url = _start_model(stack, folder)
        dsns = {
            name: asyncio.run(store.create_database(postgres.dsn, name, migrated=name == PLACET))
            for name in (PLACET, *PEERS)
        }
        server = OurServer(folder=folder, dsn=dsns[PLACET], model_url=url)
        stack.callback(server.stop)
        server.start()
        report: dict[str, Any] = {}
        if arguments.repetitions:
            report |= _compared(stack, server, postgres, dsns, url, arguments)
        if arguments.first_delta:
            count = 50 if arguments.quick else 300
            report["first_delta"] = asyncio.run(first_deltas(server, url, count))
        if arguments.streams:
            asyncio.run(streams(server, 10))
            report["streams"] = asyncio.run(streams(server, arguments.streams))
        if arguments.parked:
            report["parked"] = parked(server, dsns[PLACET], arguments.parked)
        return report


def _start_model(stack: ExitStack, folder: Path) -> str:
    port = free_port()
    command = [sys.executable, str(HERE / "servers/model.py"), str(port)]
    model = Child(command, os.environ, folder / "model.log")
    stack.callback(model.stop)
    model.wait_until_listening(port)
    return f"http://127.0.0.1:{port}/v1"


def _compared(
    stack: ExitStack,
    server: OurServer,
    postgres: EmbeddedPostgres,
    dsns: dict[str, str],
    url: str,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    lanes = {
        BARE: Lane(stack, "agent_bare.py", url, "whole"),
        STREAMED: Lane(stack, "agent_bare.py", url, "streamed"),
        PLACET: Lane(stack, "agent_placet.py", f"127.0.0.1:{server.port.number}", server.token),
        LANGGRAPH: Lane(stack, "agent_langgraph.py", dsns[LANGGRAPH], url, "chat"),
        LEAN: Lane(stack, "agent_langgraph.py", dsns[LEAN], url, "client"),
        DBOS: Lane(stack, "agent_dbos.py", dsns[DBOS], url),
    }
    costs: dict[str, dict[int, list[Costs]]] = {name: defaultdict(list) for name in (PLACET, *PEERS)}
    for repetition in range(arguments.repetitions + 1):
        for level in LEVELS:
            found = _round(lanes, server, postgres, level, repetition, scale=1 if arguments.quick else 2)
            # The first is for warming up.
            for name in costs if repetition else ():
                # Ours hears every answer as a stream, the others whole: each is compared with the same, bare.
                over = _over(found[name], found[STREAMED if name == PLACET else BARE])
                costs[name][level].append(over)
                say(f"{name:16} c{level:<3} " + " ".join(f"{cost} {ms:.2f}" for cost, ms in over.items()))
    return {
        "overhead": {
            name: {f"c{level}": _medians(several) for level, several in by_level.items()}
            for name, by_level in costs.items()
        },
        **{
            f"ratio_to_{name}": {
                f"c{level}": _ratios(costs[PLACET][level], costs[name][level]) for level in LEVELS
            }
            for name in PEERS
        },
    }


class Spent(NamedTuple):
    """Milliseconds of one run: on the clock, and of CPU by all that it takes but the model."""

    ms: float
    cpu_ms: float


def _round(
    lanes: dict[str, Lane],
    server: OurServer,
    postgres: EmbeddedPostgres,
    level: int,
    turn: int,
    *,
    scale: int,
) -> dict[str, dict[str, Spent]]:
    """By who ran it and its shape; each time somebody else begins."""
    names = list(lanes)
    found: dict[str, dict[str, Spent]] = {name: {} for name in names}
    for shape in SHAPES:
        count = max(level, 2) * TIMES[shape] * scale
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            pids = [lanes[name].pid, *(server.pids if name == PLACET else ()), *postgres.process_ids]
            before = cpu_seconds(pids)
            seconds = lanes[name].seconds(shape, level, count)
            cpu = (cpu_seconds(pids) - before) / count
            found[name][shape] = Spent(seconds * 1000, cpu * 1000)
    return found


def _over(mine: dict[str, Spent], bare: dict[str, Spent]) -> Costs:
    """Of one run with a single answer, of each further turn with one call, and of each further call of a turn."""
    costs: Costs = {}
    for kind in Spent._fields:
        over = {shape: getattr(mine[shape], kind) - getattr(bare[shape], kind) for shape in SHAPES}
        costs |= {
            f"answer_{kind}": over[ANSWER],
            f"turn_{kind}": (over[TURNS_] - over[ANSWER]) / TURNS,
            f"call_{kind}": (over[CALLS_] - over[TURNS_]) / (TURNS * (CALLS - 1)),
        }
    return costs


def _medians(several: Sequence[Costs]) -> Costs:
    return {cost: round(statistics.median(each[cost] for each in several), 2) for cost in several[0]}


def _ratios(ours: Sequence[Costs], theirs: Sequence[Costs]) -> dict[str, float | None]:
    """Below 1 where ours is less. None: too little to be told from nothing."""
    mine, other = _medians(ours), _medians(theirs)
    return {
        cost: round(mine[cost] / other[cost], 2) if mine[cost] > 0 and other[cost] > 0 else None
        for cost in mine
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--repetitions", type=int, default=5, help="0: no comparison")
    parser.add_argument(
        "--first-delta", action="store_true", help="and when a client hears a run's first words"
    )
    parser.add_argument(
        "--parked", type=int, default=0, metavar="N", help="and the memory of N runs that wait"
    )
    parser.add_argument(
        "--streams", type=int, default=0, metavar="N", help="and N runs at once that clients listen to"
    )
    parser.add_argument("--programs", default="auto", help="Postgres: auto, wheel, installed or a bin folder")
    parser.add_argument("--folder", help="where the data folder is made (default: the temporary folder)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repetitions = min(arguments.repetitions, 1)
    try:
        _require_packages(compares=bool(arguments.repetitions))
        with tempfile.TemporaryDirectory(prefix="placet-benchmark-", dir=arguments.folder) as folder:
            # The account of Postgres reads through it.
            Path(folder).chmod(0o755)
            report = measure(Path(folder), arguments)
    except (Unfit, EmbeddedError) as error:
        print(error, file=sys.stderr)
        return 2
    except (StartFailed, LoadFailed) as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(f"{name}: {value}" for name, value in report.items()))
    return 0


def _require_packages(*, compares: bool) -> None:
    """Raises Unfit."""
    wanted = [
        "pydantic_ai",
        "openai",
        *(("langgraph", "langchain_openai", "psycopg_pool", "dbos") if compares else ()),
    ]
    if missing := [name for name in wanted if find_spec(name) is None]:
        raise Unfit(f"{', '.join(missing)} missing: python -m pip install -r benchmarks/requirements.txt")


if __name__ == "__main__":
    sys.exit(main())
