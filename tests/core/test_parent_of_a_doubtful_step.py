"""A step in doubt is waited for as long as somebody is asked about it, and told as doubtful once, if nobody knows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import CallFailed
from placet.lookup import Committed, NotKnown
from placet_server.loops.effect_reconciler import EffectReconciler
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.store.clock import FixedClock
from tests.core.kernels import QUEUE, open_kernel, output, put, read, work_off
from tests.core.parking import parked, told
from tests.postgres import Database

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("known", [True, False], ids=["known", "given up"])
async def test_it_is_told_what_was_found_out_or_that_nobody_knows(database: Database, known: bool) -> None:
    app, starts, paid = App("doubt"), [], []

    @app.tool("doubt.pay", "reconcilable", reconcile_elapsed_max=5.0)
    async def pay() -> str:
        paid.append(1)
        raise RuntimeError("no reply")

    @app.lookup("doubt.pay")
    async def look() -> Committed | NotKnown:
        return Committed("paid") if known else NotKnown()

    @app.tool("doubt.top", "composed")
    async def top(context: Context) -> Any:
        starts.append(context.attempt)
        try:
            return await context.call("pay", "doubt.pay", {})
        except CallFailed as failed:
            return failed.outcome.kind

    clock = FixedClock(START)
    async with open_kernel(database.dsn, app, queue=QUEUE, clock=clock) as kernel:
        parent = (await put(kernel, "doubt.top", {}, "k")).action
        await work_off(kernel)
        await parked(kernel, parent.action_id)
        asking = EffectReconciler(kernel).reconciler
        for _ in range(8):
            clock.advance(timedelta(seconds=1))
            await asking.run_once()
            await asking.idle()
            await work_off(kernel)
        ended = await read(kernel, parent.action_id)
        assert (ActionState.SUCCEEDED, "paid" if known else "ambiguous") == (ended.state, output(ended))
        assert (EffectState.DONE if known else EffectState.UNKNOWN) is ended.effect
        assert (1, [1, 1], [1]) == (ended.attempt, starts, paid)
        assert 1 == (await told(kernel, parent.action_id)).count("parked")
