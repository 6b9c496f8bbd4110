"""A run that ends between a call and its result wedges no session: the next run tells how each call stands, once."""

import asyncio

import pytest

from placet.testing.model_servers import (
    KEY,
    AnthropicServer,
    ModelServer,
    OpenAIServer,
    Say,
    Stall,
    Step,
    call,
)
from placet_server.core.execution.cancel import cancel_action
from placet_server.model.lifecycle import ActionState
from tests.core.agents import KEY_VARIABLE, Shop, open_shop, said
from tests.core.conversations import put_in, roles, said_in, session
from tests.core.kernels import ALICE, dispatch, output, read, until, work_off
from tests.postgres import Database

S = ActionState
CALLS = Say(
    "I do.", call("shop-count", order="A-1"), call("shop-pay", order="A-1"), call("shop-gone", order="A-1")
)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.mark.parametrize("wire", [OpenAIServer, AnthropicServer])
async def test_every_call_of_a_run_that_was_cut_off_is_told_as_it_stands_and_once(
    database: Database, wire: type[ModelServer]
) -> None:
    shop = Shop()
    script = [CALLS, Say("Counted, not paid."), Say("You are welcome.")]
    async with wire(script) as server, open_shop(database.dsn, shop, server) as kernel:
        one = await session(kernel)
        cut = await said_in(kernel, one, "Pay A-1.", "k1")
        assert S.WAITING is cut.state
        await cancel_action(kernel.engine, ALICE, cut.action_id, "enough")
        await work_off(kernel)
        assert S.CANCELLED is (await read(kernel, cut.action_id)).state
        second = await said_in(kernel, one, "What did you do?", "k2")
        # The server refuses a conversation in which a call has no result, or two.
        assert said("Counted, not paid.") == output(second)
        text = server.requests[1].body.decode()
        for told in ("counted A-1", "Cancelled before it was complete", "there is no tool of this name"):
            assert 1 == text.count(told)
        third = await said_in(kernel, one, "Thanks.", "k3")
        assert (said("You are welcome."), 3) == (output(third), len(server.requests))
        assert (["A-1"], []) == (shop.counted, shop.paid)


async def test_a_request_without_an_answer_stands_before_what_is_asked_next(database: Database) -> None:
    script: dict[str, list[Step]] = {"": [Stall(60.0), Say("Never.")]}
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        cut = (await put_in(kernel, one, "This?", "k1")).action
        await dispatch(kernel)
        working = asyncio.ensure_future(work_off(kernel))
        await until(lambda: len(server.requests) == 1, 20.0)
        await cancel_action(kernel.engine, ALICE, cut.action_id, "enough")
        await working
        script[""] = [Say("Both.")]
        second = await said_in(kernel, one, "And that?", "k2")
        assert (said("Both."), ["user: This?", "user: And that?"]) == (
            output(second),
            roles(server.requests[1]),
        )
