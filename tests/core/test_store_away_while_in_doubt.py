"""What became of an effect is found out later if the store is away when somebody asks."""

from datetime import timedelta
from typing import Any

import pytest

from placet_server.core.recovery.reconcile import VISIBLE_SECONDS
from placet_server.model.errors import StoreUnavailable
from placet_server.store import reconcile as rows
from placet_server.store.clock import FixedClock
from tests.core.kernels import QUEUE, open_kernel
from tests.core.test_reconcile_says_what_happened import OVER, START, Bench, ask, doubt, reconciler
from tests.postgres import Database


@pytest.mark.parametrize("name", ["unsafe", "reconcilable_marked"])
async def test_a_store_that_is_away_puts_a_doubt_off_and_is_no_fault(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    bench, clock = Bench(), FixedClock(START)
    async with open_kernel(database.dsn, bench.app, queue=QUEUE, clock=clock) as kernel:
        await doubt(kernel, name)
        clock.advance(OVER)
        asking = reconciler(kernel)

        async def away(*arguments: Any, **options: Any) -> None:
            raise StoreUnavailable(detail="away")

        with monkeypatch.context() as outage:
            outage.setattr(rows, "note_finding", away)
            await ask(asking)
        told = [each.message for each in caplog.records]
        assert 1 == sum("asked about again later" in each for each in told)
        assert "a background task failed" not in told
        clock.advance(timedelta(seconds=VISIBLE_SECONDS))
        await ask(asking)
        async with kernel.journal.pool.connection() as connection:
            assert await connection.fetchval("select finding from reconciles") is not None
