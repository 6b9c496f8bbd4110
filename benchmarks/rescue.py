"""How fast the actions of a dead server run again: ten thousand leases without an owner.

    python benchmarks/rescue.py [--json] [--count 10000]

docs/performance.md says what is measured. Exits with 1 if one was lost or ran more than once after its rescue.
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
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import noop_app, store
from benchmarks.contenders import Placet
from benchmarks.preload import fill_orphans
from benchmarks.processes import StartFailed
from placet_server.embedded.error import EmbeddedError

LEASE_SECONDS = 2
LOOK_SECONDS = 0.1
SECONDS_MAX = 300.0
_STATES = """
    select count(*) filter (where state = 'RUNNING' and instance_id = $1::uuid) as orphaned,
        count(*) filter (where state = 'SUCCEEDED') as succeeded,
        count(*) filter (where state = 'SUCCEEDED' and attempt = 2) as second_attempt
    from actions
"""


class _Server(Placet):
    def _environment(self, number: int) -> dict[str, str]:
        return super()._environment(number) | {"PLACET_LEASE_SECONDS": str(LEASE_SECONDS)}


def measure(folder: Path, programs: str, count: int) -> dict[str, Any]:
    """Seconds from when the first lease was taken away. Raises StartFailed, EmbeddedError."""
    with ExitStack() as stack:
        postgres = store.start(folder, programs)
        stack.callback(postgres.stop)
        dsn = asyncio.run(store.create_database(postgres.dsn, "rescue"))
        first = _Server(processes=1, folder=folder, name="first", dsn=dsn)
        try:
            first.start()
            with first.client() as client:
                # The action whose copies are what is measured.
                client.wait(client.submit(noop_app.CAPABILITY, noop_app.INPUT).action.action_id)
        finally:
            first.stop()
        boot_id = asyncio.run(fill_orphans(dsn, count))
        server = _Server(processes=1, folder=folder, name="rescuing", dsn=dsn)
        stack.callback(server.stop)
        server.start()
        return asyncio.run(_watched(dsn, boot_id, count))


async def _watched(dsn: str, boot_id: str, count: int) -> dict[str, Any]:
    connection = await asyncpg.connect(dsn)
    try:
        begin, rescued, looked = 0.0, 0.0, time.monotonic()
        give_up = looked + SECONDS_MAX
        while True:
            before, looked = looked, time.monotonic()
            row = await connection.fetchrow(_STATES, boot_id)
            assert row is not None
            if not begin and row["orphaned"] < count:
                begin = before
            if not rescued and not row["orphaned"]:
                rescued = looked
            # The model is one of those that succeeded.
            if row["succeeded"] == count + 1 or looked > give_up:
                break
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await connection.close()
    problems = []
    if row["second_attempt"] != count:
        problems.append(f"{row['second_attempt']} of {count} ran once after their rescue; {dict(row)}")
    return {
        "count": count,
        "rescued_seconds": round(rescued - begin, 2),
        "run_seconds": round(looked - begin, 2),
        "problems": problems,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--count", type=int, default=10_000, help="actions whose server died")
    parser.add_argument("--programs", default="auto", help="Postgres: auto, wheel, installed or a bin folder")
    parser.add_argument("--folder", help="where the data folder is made (default: the temporary folder)")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="placet-benchmark-", dir=arguments.folder) as folder:
            # The account of Postgres reads through it.
            Path(folder).chmod(0o755)
            report = measure(Path(folder), arguments.programs, arguments.count)
    except EmbeddedError as error:
        print(error, file=sys.stderr)
        return 2
    except StartFailed as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(f"{name}: {value}" for name, value in report.items()))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
