"""Who was asked about one doubt may answer when the action is in another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import placet
from placet_server.store import reconcile
from placet_server.store.clock import FixedClock
from tests.core.kernels import QUEUE, open_kernel, put, work_off
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)
NOTED = "select finding, give_up_time is not null from reconciles"


async def test_what_was_found_out_about_an_earlier_doubt_says_nothing_of_a_later_one(
    database: Database,
) -> None:
    clock, app = FixedClock(START), placet.App("bank")

    @app.tool("bank.pay", "unsafe")
    def pay() -> None:
        raise ConnectionResetError

    async with open_kernel(database.dsn, app, queue=QUEUE, clock=clock) as kernel:
        action = (await put(kernel, "bank.pay", {}, "k")).action
        await work_off(kernel)
        clock.advance(timedelta(seconds=1))
        async with kernel.journal.pool.connection() as connection:
            (due,) = await reconcile.claim_due(
                connection,
                [reconcile.Kind(action.capability, action.version, "acme")],
                each_max=1,
                count_max=1,
                visible_seconds=60.0,
                now=clock.now(),
            )
            note = partial(
                reconcile.note_finding,
                connection,
                finding="late",
                delay_seconds=9.0,
                give_up=True,
                now=clock.now(),
            )
            await note(due._replace(since_time_us=due.since_time_us - 1))
            assert [(None, False)] == [tuple(row) for row in await connection.fetch(NOTED)]
            await note(due)
            assert [("late", True)] == [tuple(row) for row in await connection.fetch(NOTED)]
