"""An agent that no server can run is refused at every door, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from placet import CallFailed
from placet.context import Context
from placet_server.core.kernel import Kernel
from placet_server.model.run_errors import AgentUnavailable
from tests.core.family import family
from tests.core.kernels import QUEUE, open_kernel, output, put, run, states, work_off
from tests.postgres import Database

ASKED: Any = {"parts": [{"text": "hello"}]}


async def refused(kernel: Kernel, ask: Any) -> None:
    with pytest.raises(AgentUnavailable) as caught:
        await ask(kernel, "support.helper", ASKED, "k1")
    assert {"agent": "support.helper", "problem": "extra_missing"} == caught.value.metadata()
    outcome = caught.value.outcome
    assert outcome is not None
    assert "REFUSED" == outcome.kind


async def test_an_agent_is_refused_whoever_asks_it_and_however(database: Database) -> None:
    async def parent(context: Context) -> Any:
        try:
            await context.call("ask", "support.helper", ASKED)
        except CallFailed as failed:
            return [failed.outcome.kind, failed.outcome.reason]

    shop = family(parent)
    shop.app.agent("support.helper", model="fast", tools=["work.read"])
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        for ask in (run, put):
            await refused(kernel, ask)
        assert [] == await states(kernel)
        asking = (await run(kernel, "work.idempotent", {}, "k2")).action
        await work_off(kernel)
        assert ["refused", "AGENT_UNAVAILABLE"] == output(asking)
        assert ["SUCCEEDED"] == await states(kernel)
