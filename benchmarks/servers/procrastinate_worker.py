"""procrastinate with no-ops, as its documentation runs it, with the concurrency that it does best at.

procrastinate_worker.py fill DSN COUNT | work DSN COUNT
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import procrastinate
import uvloop

from benchmarks.noop_app import INPUT_JSON
from benchmarks.servers.tally import Tally

CONCURRENCY = 64
FILL_BATCH = 1000


async def fill(dsn: str, count: int) -> None:
    app = _app(dsn)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        defer = app.configure_task("noop", queue="default")
        payload: dict[str, Any] = {"order": json.loads(INPUT_JSON)}
        for first in range(0, count, FILL_BATCH):
            await defer.batch_defer_async(*[payload] * min(FILL_BATCH, count - first))
        await app.connector.execute_query_async("analyze")


async def work(dsn: str, count: int) -> None:
    app = _app(dsn)
    tally = Tally(count)

    async def noop(order: dict[str, Any]) -> None:
        tally.done += 1

    app.task(name="noop")(noop)
    async with app.open_async():
        running = asyncio.create_task(
            app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
        )
        await tally.tell()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _app(dsn: str) -> procrastinate.App:
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))


if __name__ == "__main__":
    uvloop.run({"fill": fill, "work": work}[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
