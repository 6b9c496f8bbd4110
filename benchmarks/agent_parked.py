"""What runs that wait for people cost a server in memory, for benchmarks/agents.py."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg

from benchmarks import agent_app
from benchmarks.agent_shapes import ASKED
from benchmarks.contenders import Placet
from benchmarks.load import LoadFailed
from benchmarks.processes import resident_bytes
from placet.batch import Submission
from placet_server.loops.memory_trimmer import TRIM_SECONDS

PARKED_SECONDS_MAX = 3600.0
# Memory is compared from here on: caches are full, and every code path has been taken.
WARM = 1000


def parked(server: Placet, dsn: str, count: int) -> dict[str, Any]:
    """So many runs wait for people: what the server has in memory of them."""
    warm = min(WARM, count)
    _park(server, dsn, warm, warm)
    # Memory that is free is given back by then.
    time.sleep(2 * TRIM_SECONDS)
    before = resident_bytes(server.pids)
    begin = time.monotonic()
    _park(server, dsn, count, warm + count)
    seconds = time.monotonic() - begin
    time.sleep(2 * TRIM_SECONDS)
    grown = resident_bytes(server.pids) - before
    return {
        "runs": count,
        "memory_grown_mb": round(grown / 2**20, 1),
        "bytes_each": round(grown / count),
        "parked_per_second": round(count / seconds),
    }


def _park(server: Placet, dsn: str, count: int, total: int) -> None:
    asked = {"parts": [{"text": ASKED}]}
    with server.client() as client:
        for answer in client.submit_batch(
            [Submission(agent_app.WAITING, asked) for _ in range(count)], timeout=600.0
        ):
            if isinstance(answer, Exception):
                raise LoadFailed(f"a run was refused: {answer}")
    asyncio.run(_until_parked(dsn, total))


async def _until_parked(dsn: str, total: int) -> None:
    connection = await asyncpg.connect(dsn)
    deadline = time.monotonic() + PARKED_SECONDS_MAX
    try:
        while True:
            rows = await connection.fetch(
                "select state, count(*) as count from actions where capability = $1 group by state",
                agent_app.WAITING,
            )
            states = {row["state"]: row["count"] for row in rows}
            if states == {"WAITING": total}:
                return
            if states.keys() - {"WAITING", "RUNNING", "QUEUED"} or time.monotonic() > deadline:
                raise LoadFailed(f"{total} runs were to wait: {states}")
            await asyncio.sleep(0.5)
    finally:
        await connection.close()
