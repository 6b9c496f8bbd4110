"""A run that is cancelled: while its model answers, while it waits for the next try, and while people think."""

import asyncio
from contextlib import aclosing

import pytest

from placet.testing.model_servers import KEY, Fail, OpenAIServer, Say, Stall, Step, call
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.publication.watch import watch_action
from placet_server.model.event import Event, EventType
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, open_shop, spent
from tests.core.kernels import ALICE, dispatch, put, read, until, work_off
from tests.core.scripted import entries
from tests.postgres import Database


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.mark.parametrize("trouble", [Stall(60.0), Stall(60.0, after_bytes=300), Fail(429, retry_after="4")])
async def test_a_run_is_cancelled_while_its_turn_is_under_way(database: Database, trouble: Step) -> None:
    shop = Shop()
    script = [Say("I count.", call("shop-count", order="A-1")), trouble, Say("Too late.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await dispatch(kernel)
        working = asyncio.ensure_future(work_off(kernel))
        await until(lambda: len(server.requests) == 2, 20.0)
        await cancel_action(kernel.engine, ALICE, action.action_id, "enough")
        await working
        ended = await read(kernel, action.action_id)
        assert 2 == len(server.requests)
        assert (ActionState.CANCELLED, EffectState.DONE) == (ended.state, ended.effect)
        assert "answered" != (await entries(kernel, action.action_id))[-1][1]
        assert 1 == (await spent(kernel, action.action_id)).calls
        # What was said before stays readable, also for who comes late.
        async with aclosing(watch_action(kernel.journal, ALICE, action.action_id, "")) as items:
            late = [item async for item in items if isinstance(item, Event)]
        said = [event.body["text"] for event in late if event.type is EventType.DELTA]
        assert ("I count.", EventType.SETTLED) == ("".join(said)[:8], late[-1].type)


async def test_a_run_that_waits_for_people_is_cancelled_with_its_calls(database: Database) -> None:
    shop = Shop()
    script = [Say("", call("shop-pay", order="A-1")), Say("Over.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await work_off(kernel)
        await cancel_action(kernel.engine, ALICE, action.action_id, "enough")
        await work_off(kernel)
        ended = await read(kernel, action.action_id)
        assert (1, ActionState.CANCELLED, []) == (len(server.requests), ended.state, shop.paid)
