"""The process that ran an attempt is gone, and its tool has no lookup: that is a person's to find out, and soon."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import grpc
import pytest

from placet_server.core.kernel import Kernel
from placet_server.model.ending_errors import EffectAmbiguous
from placet_server.store.clock import FixedClock
from tests.connector.conftest import near_app
from tests.connector.rogue import PATIENT, Talk, rogue_of
from tests.core.kernels import open_kernel, run
from tests.core.test_reconcile_says_what_happened import OVER, START, ask, reconciler
from tests.postgres import Database


async def lose(talk: Talk) -> None:
    await talk.accept()
    await talk.refuse(grpc.StatusCode.UNAVAILABLE)


async def _given_up(kernel: Kernel) -> dict[str, bool]:
    sql = "select a.capability, r.give_up_time is not null from reconciles r join actions a using (tenant, action_id)"
    async with kernel.journal.pool.connection() as connection:
        rows: list[Any] = await connection.fetch(sql)
    return dict(rows)


async def test_it_is_given_up_once_the_attempt_can_act_no_more(database: Database) -> None:
    clock = FixedClock(START)
    async with (
        open_kernel(database.dsn, near_app(), connectors=PATIENT, clock=clock) as kernel,
        rogue_of(kernel) as rogue,
    ):
        rogue.script = lose
        for name in ("far.unsafe", "far.reconcilable"):
            with pytest.raises(EffectAmbiguous):
                await run(kernel, name, {}, f"key of {name}")
        asking = reconciler(kernel)
        clock.advance(timedelta(seconds=2))
        await ask(asking)
        assert {"far.unsafe": False, "far.reconcilable": False} == await _given_up(kernel)
        clock.advance(OVER)
        await ask(asking)
        # Whose author can be asked is asked again.
        assert {"far.unsafe": True, "far.reconcilable": False} == await _given_up(kernel)
