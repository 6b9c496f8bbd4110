"""pgqueuer with no-ops, as its documentation runs it, with the batch that it does best at.

pgqueuer_worker.py fill DSN COUNT | work DSN COUNT
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.noop_app import INPUT_JSON
from benchmarks.servers.tally import Tally

BATCH = 100
FILL_BATCH = 1000
PAYLOAD = INPUT_JSON.encode()


async def fill(dsn: str, count: int) -> None:
    connection = await asyncpg.connect(dsn)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for first in range(0, count, FILL_BATCH):
        size = min(FILL_BATCH, count - first)
        await queries.enqueue(["noop"] * size, [PAYLOAD] * size, [0] * size)
    await connection.execute("vacuum analyze")
    await connection.close()


async def work(dsn: str, count: int) -> None:
    connection = await asyncpg.connect(dsn)
    queuer = PgQueuer(AsyncpgDriver(connection))
    tally = Tally(count)

    async def noop(job: Job) -> None:
        tally.done += 1

    queuer.entrypoint("noop")(noop)
    running = asyncio.create_task(queuer.run(batch_size=BATCH))
    await tally.tell()
    queuer.shutdown.set()
    await running
    await connection.close()


if __name__ == "__main__":
    uvloop.run({"fill": fill, "work": work}[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
