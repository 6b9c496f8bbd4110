"""Execute of one step with a key against what others do for it: DBOS in its process, Restate by HTTP.

    python benchmarks/peers.py [--quick] [--json]

In one run, in turns. docs/performance.md says what is measured. Exits with 2 if the machine lacks a tool or a package.
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
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import load, noop_app, store
from benchmarks.bench import say
from benchmarks.contenders import HERE, Placet
from benchmarks.load import LoadFailed, Unfit
from benchmarks.plan import PLACET, Case, Plan
from benchmarks.processes import Child, StartFailed
from placet_server.embedded.error import EmbeddedError

DBOS, RESTATE = "dbos", "restate"
LEVELS = (16, 64)
SECONDS_MAX = 120.0


class OurPeer:
    def __init__(self, folder: Path, dsn: str, plan: Plan) -> None:
        self._binary = load.build(folder)
        self._server = Placet(processes=1, folder=folder, name=PLACET, dsn=dsn)
        self._plan = plan

    def start(self, stack: ExitStack) -> None:
        stack.callback(self._server.stop)
        self._server.start()

    def rate(self, level: int) -> float:
        case = Case(kind=PLACET, processes=1, level=level)
        _, _, report = load.Load(self._binary, self._server, case, self._plan).run(lambda: None)
        if set(report["statuses"]) != {"0"}:
            raise LoadFailed(f"placet: statuses {report['statuses']}")
        return float(report["calls_per_second"])


class DbosPeer:
    def __init__(self, dsn: str, plan: Plan) -> None:
        self._dsn = dsn
        self._plan = plan

    def rate(self, level: int) -> float:
        return _told(
            [sys.executable, str(HERE / "servers/dbos_load.py"), self._dsn, str(level), *_times(self._plan)]
        )


class RestatePeer:
    """Its server on its own store, all of it on this machine, and a service of its TypeScript SDK."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder / RESTATE
        shutil.copytree(HERE / RESTATE, self._folder, ignore=shutil.ignore_patterns("node_modules"))
        self._body = self._folder / "body.json"
        self._body.write_text(noop_app.INPUT_JSON)
        self._plan = plan
        self._port = free_port()

    def start(self, stack: ExitStack) -> None:
        _told(
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=self._folder, number=False
        )
        service_port, admin, node = free_port(), free_port(), free_port()
        service = Child(
            ["node", str(self._folder / "service.js"), str(service_port)],
            os.environ,
            self._folder / "service.log",
        )
        stack.callback(service.stop)
        service.wait_until_listening(service_port)
        environment = os.environ | {
            "RESTATE_BASE_DIR": str(self._folder / "data"),
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self._port}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "1",
            "RUST_LOG": "error",
        }
        (binary,) = self._folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server")
        server = Child([str(binary)], environment, self._folder / "server.log")
        stack.callback(server.stop)
        for port in (admin, self._port):
            server.wait_until_listening(port)
        _register(admin, service_port)

    def rate(self, level: int) -> float:
        script = str(self._folder / "load.js")
        return _told(["node", script, str(self._port), str(level), *_times(self._plan), str(self._body)])


def _register(admin: int, service: int) -> None:
    """The server answers a little after it listens."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{admin}/deployments",
        json.dumps({"uri": f"http://127.0.0.1:{service}"}).encode(),
        {"content-type": "application/json"},
    )
    deadline = time.monotonic() + 30.0
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise StartFailed(f"restate does not take the service: {error}") from error
            time.sleep(0.2)


def _times(plan: Plan) -> tuple[str, str]:
    return str(plan.warmup_seconds), str(plan.measured_seconds)


def _told(command: list[str], cwd: Path | None = None, number: bool = True) -> float:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=cwd)
    if done.returncode != 0:
        raise LoadFailed(f"{command[:2]}: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1]) if number else 0.0


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Raises Unfit, StartFailed, LoadFailed, EmbeddedError."""
    plan = Plan(measured_seconds=1.0 if arguments.quick else 3.0)
    with ExitStack() as stack:
        postgres = store.start(folder, arguments.programs)
        stack.callback(postgres.stop)
        dsn = asyncio.run(store.create_database(postgres.dsn, PLACET))
        theirs = asyncio.run(store.create_database(postgres.dsn, DBOS, migrated=False))
        ours, restate = OurPeer(folder, dsn, plan), RestatePeer(folder, plan)
        ours.start(stack)
        restate.start(stack)
        peers: dict[str, OurPeer | DbosPeer | RestatePeer] = {
            PLACET: ours,
            DBOS: DbosPeer(theirs, plan),
            RESTATE: restate,
        }
        rates: dict[str, dict[int, list[float]]] = {name: {level: [] for level in LEVELS} for name in peers}
        for repetition in range(arguments.repetitions):
            turn = list(peers)
            for level in LEVELS:
                for name in turn[repetition % 3 :] + turn[: repetition % 3]:
                    rates[name][level].append(peers[name].rate(level))
                    say(f"{name:8} c{level:<3} {rates[name][level][-1]:8.0f}/s")
    return {
        "calls_per_second": {
            name: {str(level): [round(rate) for rate in found] for level, found in by_level.items()}
            for name, by_level in rates.items()
        },
        **{
            f"ratio_to_{name}": {
                str(level): round(
                    statistics.median(
                        a / b for a, b in zip(rates[PLACET][level], rates[name][level], strict=True)
                    ),
                    2,
                )
                for level in LEVELS
            }
            for name in (DBOS, RESTATE)
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--programs", default="auto", help="Postgres: auto, wheel, installed or a bin folder")
    parser.add_argument("--folder", help="where the data folder is made (default: the temporary folder)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repetitions = 1
    try:
        load.require_tools()
        if find_spec("dbos") is None:
            raise Unfit("dbos is missing: python -m pip install -r benchmarks/requirements.txt")
        if shutil.which("npm") is None:
            raise Unfit("npm is missing: Restate and its SDK are installed with it")
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


if __name__ == "__main__":
    sys.exit(main())
