"""What waits in a queue, ready or delayed, is held by the store alone."""

import asyncio
import gc
import os
import tracemalloc

from placet_server.core.admission.dispatch import QueueSettings
from placet_server.core.publication.promote import promote
from placet_server.model.action import Submission
from tests.core.kernels import dispatch, open_kernel, put, states, until
from tests.core.workshop import Workshop
from tests.postgres import Database

ACTIONS = int(os.environ.get("PLACET_WAITING_ACTIONS", "2000"))
# A task or a row in memory would be thousands.
BYTES_EACH_MAX = 200


async def test_thousands_that_wait_hold_no_memory_and_no_task(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(
        database.dsn, shop.app, queue=QueueSettings(slots_max=1, poll_seconds=0.0)
    ) as kernel:

        async def queue(count: int) -> None:
            places = (Submission(), Submission(delay_seconds=3600.0))
            for begin in range(0, count, 100):
                puts = (put(kernel, "work.read", {}, place=places[n % 2]) for n in range(begin, begin + 100))
                await asyncio.gather(*puts)
            for _ in range(3):
                await promote(kernel.journal)
                await dispatch(kernel)

        await queue(200)
        await until(lambda: 1 == shop.at_once)
        tracemalloc.start()
        try:
            tasks, before = len(asyncio.all_tasks()), _bytes()
            await queue(ACTIONS)
            grown = _bytes() - before
        finally:
            tracemalloc.stop()
        assert grown < BYTES_EACH_MAX * ACTIONS
        assert tasks == len(asyncio.all_tasks())
        assert 1 == len(kernel.engine.runs) == (await states(kernel)).count("RUNNING")


def _bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
