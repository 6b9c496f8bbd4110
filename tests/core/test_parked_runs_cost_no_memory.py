"""A composed action whose steps all wait is held by the store alone: no task, no memory, no slot."""

import asyncio
import gc
import os
import tracemalloc

from placet.app import App
from placet.context import Context
from placet_server.core.admission.dispatch import QueueSettings
from tests.core.kernels import open_kernel, put, until, work_off
from tests.postgres import Database

ACTIONS = int(os.environ.get("PLACET_WAITING_ACTIONS", "400"))
# The process keeps nothing of each; a run in memory would be some ten thousand. What is counted beside are caches, and
# whatever else this process does meanwhile: alone, 2,000 take less than 100 each.
BYTES_EACH_MAX = 4000
AT_ONCE = 100


async def test_thousands_that_are_parked_hold_no_memory_and_no_task(database: Database) -> None:
    app = App("till")

    @app.tool("till.pay", "unsafe", approval="1 of role:finance; ttl=1h")
    async def pay(context: Context) -> None: ...

    @app.tool("till.sell", "composed")
    async def sell(context: Context) -> None:
        await context.call("pay", "till.pay", {})

    settings = QueueSettings(slots_max=AT_ONCE, poll_seconds=0.0)
    async with open_kernel(database.dsn, app, queue=settings) as kernel:

        async def park(count: int) -> None:
            for begin in range(0, count, AT_ONCE):
                numbers = range(begin, min(begin + AT_ONCE, count))
                await asyncio.gather(*(put(kernel, "till.sell", {}, f"{count}-{n}") for n in numbers))
                await work_off(kernel)

        async def standing() -> dict[str, int]:
            async with kernel.journal.pool.connection() as connection:
                rows = await connection.fetch(
                    "select capability || ' ' || state as what, count(*) from actions group by what"
                )
            return {row["what"]: row["count"] for row in rows}

        await park(AT_ONCE)
        tracemalloc.start()
        try:
            tasks, before = len(asyncio.all_tasks()), _bytes()
            await park(ACTIONS)
            grown = _bytes() - before
        finally:
            tracemalloc.stop()
        whole = AT_ONCE + ACTIONS
        assert {"till.pay WAITING": whole, "till.sell WAITING": whole} == await standing()
        assert grown < BYTES_EACH_MAX * ACTIONS
        assert 0 == len(kernel.engine.runs)
        await until(lambda: tasks >= len(asyncio.all_tasks()))


def _bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
