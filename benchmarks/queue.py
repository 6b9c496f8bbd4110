"""The queue against pgqueuer and procrastinate: claim, run and settle of no-ops that are there already.

    python benchmarks/queue.py [--quick] [--json] [--count 20000] [--deep 1000000]

In one run on one Postgres, in turns. docs/performance.md says what is measured and how to read it. Exits with 1 if
anything was lost or done twice, with 2 if the machine lacks a tool or a package.
"""

from __future__ import annotations

import os
import sys

# The folder of this file has a `queue` that is not Python's.
sys.path.pop(0)
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import load, store
from benchmarks.acceptance import measure_acceptance
from benchmarks.bench import say
from benchmarks.drain import Drain, OursDrain, WorkerDrain
from benchmarks.load import LoadFailed, Unfit
from benchmarks.processes import StartFailed
from placet_server.embedded.error import EmbeddedError
from placet_server.embedded.server import EmbeddedPostgres

PLACET, PGQUEUER, PROCRASTINATE = "placet", "pgqueuer", "procrastinate"
# So slow that it gets less to do; a rate needs no more.
PROCRASTINATE_SHARE = 0.1
DECAY_SECONDS = 10


def main() -> int:
    arguments = _arguments()
    try:
        _require_packages()
        load.require_tools()
        with tempfile.TemporaryDirectory(prefix="placet-benchmark-", dir=arguments.folder) as folder:
            # The account of Postgres reads through it.
            Path(folder).chmod(0o755)
            report = _measured(arguments, Path(folder))
    except (Unfit, EmbeddedError) as error:
        print(error, file=sys.stderr)
        return 2
    except (StartFailed, LoadFailed) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if arguments.json else _text(report))
    return 0 if not report["problems"] else 1


def _measured(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    with ExitStack() as stack:
        # More often than by default, for all alike: these tables live of what vacuum frees.
        settings = store.SETTINGS | {"autovacuum_naptime": "2s"}
        postgres = store.start(folder, arguments.programs, settings)
        stack.callback(postgres.stop)
        runs = _Runs(postgres, folder)
        rates: dict[str, list[float]] = {PLACET: [], PGQUEUER: [], PROCRASTINATE: []}
        for repetition in range(arguments.repetitions):
            turn = list(rates)
            for name in turn[repetition % 3 :] + turn[: repetition % 3]:
                count = arguments.count
                if name == PROCRASTINATE:
                    count = max(100, int(count * PROCRASTINATE_SHARE))
                rates[name].append(runs.drain(name, count).rate)
        report: dict[str, Any] = {
            "rates": {name: [round(rate) for rate in found] for name, found in rates.items()},
            # The worker's are of its whole life, ours of the drain alone.
            "cpu_us": runs.cpu_us,
            "ratio_to_pgqueuer": _ratio(rates[PLACET], rates[PGQUEUER]),
            "ratio_to_procrastinate": _ratio(rates[PLACET], rates[PROCRASTINATE]),
            "submit_batch": measure_acceptance(postgres, folder, arguments.repetitions),
        }
        if arguments.deep:
            deep = runs.drain(PLACET, arguments.deep)
            first, last = deep.ends(DECAY_SECONDS)
            report["deep"] = {
                "count": arguments.deep,
                "rate": round(deep.rate),
                "ratio_to_shallow": round(deep.rate / statistics.median(rates[PLACET]), 3),
                "ratio_last_to_first_seconds": round(last / first, 3),
            }
        return report | {"problems": runs.problems}


class _Runs:
    def __init__(self, postgres: EmbeddedPostgres, folder: Path) -> None:
        self._postgres = postgres
        self._folder = folder
        self._count = 0
        self.problems: list[str] = []
        self.cpu_us: dict[str, list[dict[str, int]]] = {}

    def drain(self, name: str, count: int) -> Drain:
        self._count += 1
        unique = f"{name}_{self._count}"
        dsn = asyncio.run(store.create_database(self._postgres.dsn, unique, migrated=name == PLACET))
        make: Callable[..., Drain] = OursDrain if name == PLACET else WorkerDrain
        drain = make(
            kind=name,
            name=unique,
            dsn=dsn,
            count=count,
            folder=self._folder,
            postgres=lambda: self._postgres.process_ids,
        )
        drain.run()
        self.problems += drain.problems
        cpu = {"worker": round(drain.worker_cpu_us), "postgres": round(drain.postgres_cpu_us)}
        self.cpu_us.setdefault(name, []).append(cpu)
        say(f"{unique:18} {count:8} {drain.rate:8.0f}/s  µs of CPU each {cpu}")
        return drain


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)


def _require_packages() -> None:
    missing = [name for name in ("pgqueuer", "procrastinate") if find_spec(name) is None]
    if missing:
        raise Unfit(f"{' and '.join(missing)} missing: python -m pip install -r benchmarks/requirements.txt")


def _text(report: dict[str, Any]) -> str:
    lines = [
        f"{name:14} {' '.join(f'{rate:8}' for rate in found)} /s" for name, found in report["rates"].items()
    ]
    lines += [f"{name}: {value}" for name, value in report.items() if name not in ("rates", "problems")]
    return "\n".join([*lines, *report["problems"]])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--count", type=int, default=20_000, help="what waits when a drain begins")
    parser.add_argument("--deep", type=int, default=0, metavar="N", help="one more drain, of N; N ≥ 100,000")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--programs", default="auto", help="Postgres: auto, wheel, installed or a bin folder")
    parser.add_argument("--folder", help="where the data folder is made (default: the temporary folder)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.count, arguments.repetitions = 3000, 1
    return arguments


if __name__ == "__main__":
    sys.exit(main())
