"""Rates of a queue are of one server, of all time, or of another tenant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.context import Context
from placet.failure import Failure
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.redrive import list_queues
from placet_server.model.action import Submission
from placet_server.store.clock import FixedClock
from tests.core.kernels import EVE, QUEUE, open_kernel, put, work_off
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
MAIL = Submission(queue="mail")
LATER = Submission(queue="mail", delay_seconds=86_400.0)


async def rates(kernel: Kernel, tenant: str | None) -> tuple[float, float]:
    """Begun and ended, in the last whole minute."""
    (mail,) = await list_queues(kernel.journal, tenant=tenant)
    return round(mail.claims_per_second * 60, 6), round(mail.settles_per_second * 60, 6)


@pytest.mark.both_servers
async def test_rates_are_of_all_servers_in_the_last_whole_minute(database: Database) -> None:
    shop, clock = Workshop(), FixedClock(START)

    async def once_busy(context: Context) -> Any:
        if context.attempt == 1 and context.caller.tenant == "evil":
            raise Failure("busy", "later", category="temporary", effect="not_done")

    shop.script = once_busy
    async with (
        open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as two,
    ):
        assert one.dispatcher is not None
        assert two.dispatcher is not None
        await put(one, "work.read", {}, place=LATER)
        for number in range(5):
            await put(one, "work.read", {}, f"k{number}", place=MAIL)
            await work_off((one, two)[number % 2])
        await put(one, "work.read", {}, place=MAIL, caller=EVE)
        await work_off(one)
        for kernel in (one, two, one):
            await kernel.dispatcher.write_counts()  # type: ignore[union-attr]
        assert (0.0, 0.0) == await rates(one, "acme")
        clock.advance(timedelta(seconds=60))
        assert ((5.0, 5.0), (1.0, 0.0), (6.0, 5.0)) == (
            await rates(one, "acme"),
            await rates(two, "evil"),
            await rates(two, None),
        )
        clock.advance(timedelta(seconds=60))
        assert (0.0, 0.0) == await rates(one, None)
        clock.advance(timedelta(hours=3))
        await one.dispatcher.write_counts()
        async with one.journal.pool.connection() as connection:
            assert 0 == await connection.fetchval("select count(*) from queue_counts")
