"""Somebody wants to know what became of an effect, while somebody else is told that nobody knows."""

from datetime import UTC, datetime, timedelta

import pytest

from placet.context import Context
from placet_server.store import reconcile
from placet_server.store.clock import FixedClock
from tests.core.kernels import QUEUE, open_kernel, put, work_off
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("give_up", [False, True])
async def test_a_wish_that_comes_while_somebody_is_asked_stands(database: Database, give_up: bool) -> None:
    shop, clock = Workshop(), FixedClock(START)

    async def fail(_: Context) -> None:
        raise ConnectionResetError

    shop.script = fail
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        action_id = (await put(kernel, "work.reconcilable", {}, "k")).action.action_id
        await work_off(kernel)
        now = START + timedelta(seconds=1)
        kinds = [reconcile.Kind("work.reconcilable", "1", "acme")]
        async with kernel.journal.pool.connection() as connection:

            async def claim() -> reconcile.Due | None:
                found = await reconcile.claim_due(
                    connection, kinds, each_max=2, count_max=2, visible_seconds=60.0, now=now
                )
                return found[0] if found else None

            async def note(due: reconcile.Due) -> None:
                await reconcile.note_finding(
                    connection, due, finding="not_known", delay_seconds=30.0, give_up=give_up, now=now
                )

            unasked = await claim()
            assert unasked is not None
            assert (False, None) == (unasked.wanted, await claim())
            await reconcile.want(connection, "acme", action_id, now=now)
            await note(unasked)
            asked = await claim()
            assert asked is not None
            assert asked.wanted
            await note(asked)
            assert None is await claim()
            now += timedelta(days=1)
            assert give_up is (None is await claim())
