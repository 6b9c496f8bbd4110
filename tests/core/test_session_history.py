"""What the model of a run is told of the runs before it: all that was said, in its order, each thing once."""

import asyncio
from dataclasses import replace

import pytest

from placet.agent import Memory
from placet.testing.model_servers import (
    KEY,
    AnthropicServer,
    Fail,
    ModelServer,
    OpenAIServer,
    Say,
    Stall,
    Step,
    call,
)
from placet_server.core.admission.session import close_session
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.publication.session import get_session
from placet_server.model.errors import NotFound
from placet_server.model.lifecycle import ActionState
from placet_server.model.run_errors import SessionBusy, SessionClosed
from placet_server.model.session import SessionState
from tests.core.agents import KEY_VARIABLE, Shop, open_shop, said
from tests.core.conversations import conversation, put_in, roles, said_in, session
from tests.core.kernels import ALICE, BOB, EVE, dispatch, output, read, until, work_off
from tests.core.parking import again
from tests.core.test_run_too_long import SUMMARY, Forgetful, script
from tests.postgres import Database

S = ActionState


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.mark.parametrize("wire", [OpenAIServer, AnthropicServer])
async def test_each_run_is_told_all_that_was_said_before_it_as_it_was_said(
    database: Database, wire: type[ModelServer]
) -> None:
    script = [
        Say("I look.", call("shop-find", order="A-1")),
        Say("It is red."),
        Say("As I said."),
        Say("Bye."),
    ]
    async with wire(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        await said_in(kernel, one, "What of A-1?", "k1")
        second = await said_in(kernel, one, "Sure?", "k2")
        assert (said("As I said."), [1, 2, 3]) == (output(second), [each.turn for each in server.requests])
        # What was sent is sent again as it was, and more after it.
        before, after = server.requests[1].json["messages"], server.requests[2].json["messages"]
        assert before == after[: len(before)]
        assert (await get_session(kernel.journal, ALICE, one)).run_count == 2
        # A conversation of its own has none of it.
        alone = await said_in(kernel, await session(kernel), "What of A-1?", "k3")
        assert (said("It is red."), 1) == (output(alone), server.requests[-2].turn)
        assert [
            (1, "user", "What of A-1?"),
            (1, "agent", "I look."),
            (1, "agent", "It is red."),
            (2, "user", "Sure?"),
            (2, "agent", "As I said."),
        ] == await conversation(kernel, one)


async def test_a_redriven_run_adds_what_was_asked_once(database: Database) -> None:
    script: list[Step] = [Say("Hello."), Fail(400), Say("There."), Say("Bye.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        await said_in(kernel, one, "Hi.", "k1")
        failed = await said_in(kernel, one, "Where?", "k2")
        assert S.FAILED is failed.state
        assert "" == await again(kernel, failed.action_id)
        with pytest.raises(SessionBusy) as busy:
            await put_in(kernel, one, "Well?", "k3")
        assert failed.action_id == busy.value.action_id
        await work_off(kernel)
        assert S.SUCCEEDED is (await read(kernel, failed.action_id)).state
        await said_in(kernel, one, "Thanks.", "k4")
        expected = ["user: Hi.", "assistant", "user: Where?", "assistant", "user: Thanks."]
        assert expected == roles(server.requests[-1])


async def test_a_run_that_ended_before_its_model_was_asked_is_not_told_of_and_is_not_redriven_late(
    database: Database,
) -> None:
    async with OpenAIServer([Say("Hello.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        gone = (await put_in(kernel, one, "Never mind.", "k1")).action
        await cancel_action(kernel.engine, ALICE, gone.action_id, "enough")
        await said_in(kernel, one, "Hi.", "k2")
        assert ["user: Hi."] == roles(server.requests[-1])
        assert "session_went_on" == await again(kernel, gone.action_id)
        assert [(2, "user", "Hi."), (2, "agent", "Hello.")] == await conversation(kernel, one)


async def test_a_session_is_its_owners_alone_and_over_when_it_is_closed(database: Database) -> None:
    script: list[Step] = [Say("Hello."), Stall(60.0), Say("Late.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        for stranger in (BOB, EVE):
            with pytest.raises(NotFound):
                await get_session(kernel.journal, stranger, one)
            with pytest.raises(NotFound):
                await close_session(kernel, stranger, one, cancel=True)
        with pytest.raises(NotFound):
            await put_in(kernel, one, "Hi.", "k0", caller=BOB)
        first = await said_in(kernel, one, "Hi.", "k1")
        running = (await put_in(kernel, one, "And?", "k2")).action
        await dispatch(kernel)
        await until(lambda: len(server.requests) == 2, 20.0)
        with pytest.raises(SessionBusy):
            await close_session(kernel, ALICE, one, cancel=False)
        closing = asyncio.ensure_future(close_session(kernel, ALICE, one, cancel=True))
        await work_off(kernel)
        assert SessionState.CLOSED is (await closing).state
        assert S.CANCELLED is (await read(kernel, running.action_id)).state
        with pytest.raises(SessionClosed):
            await put_in(kernel, one, "Hi.", "k3")
        # What the key has made is told all the same.
        known = await put_in(kernel, one, "Hi.", "k1")
        assert (first.action_id, True) == (known.action.action_id, known.attached)


async def test_what_was_summed_up_stands_for_all_before_it_also_for_runs_after(database: Database) -> None:
    shop = Shop(memory=Memory(compact_at_tokens=1200, keep_turns=1))
    never = Say("never")
    pay = Say("I pay for one.", call("shop-pay", order="one"))
    steps = script(pay, never, never, Say("It was one."), Say("You are welcome."))
    async with Forgetful(steps) as server, open_shop(database.dsn, shop, server) as kernel:
        server.begin = 2
        one = await session(kernel)
        cut = await said_in(kernel, one, "word " * 600, "k1")
        assert S.WAITING is cut.state
        await cancel_action(kernel.engine, ALICE, cut.action_id, "enough")
        await work_off(kernel)
        assert S.CANCELLED is (await read(kernel, cut.action_id)).state
        second = await said_in(kernel, one, "What was it?", "k2")
        assert (1, said("It was one.")) == (server.summaries, output(second))
        third = await said_in(kernel, one, "Thanks.", "k3")
        assert (1, said("You are welcome.")) == (server.summaries, output(third))
        last = server.requests[-1].body.decode()
        assert "word word" not in last
        assert 1 == last.count(SUMMARY)
        words = [text[:12] for _, _, text in await conversation(kernel, one)]
        assert [
            "word word wo",
            "I pay for on",
            "What was it?",
            "It was one.",
            "Thanks.",
            "You are welc",
        ] == words


async def test_what_a_caller_may_not_see_is_not_told_for_him_from_the_past(database: Database) -> None:
    shop = Shop(tools=("shop.card",))
    shop.app.agent("shop.plain", model="test", tools=())

    @shop.app.tool("shop.card", "read", sensitive=["/card"])
    async def card(order: str) -> dict[str, str]:
        return {"card": "4111-1111", "order": order}

    less = replace(ALICE, scopes=frozenset({"actions.execute", "actions.read", "sessions.use"}))
    script = [Say("I look.", call("shop-card", order="A-1")), Say("Found."), Say("Yes."), Say("Well.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        one, harmless = await session(kernel), await session(kernel)
        await said_in(kernel, one, "Which card?", "k1")
        assert "4111-1111" in server.requests[1].body.decode()
        # Also not after somebody who saw it has said more, with an agent that sees no cards itself.
        await said_in(kernel, one, "Really?", "k2", agent="shop.plain")
        refused = await said_in(kernel, one, "Say it again.", "k3", caller=less)
        assert (S.FAILED, "session_sensitive", 3) == (
            refused.state,
            refused.failure_code,
            len(server.requests),
        )
        assert S.SUCCEEDED is (await said_in(kernel, one, "And now?", "k4")).state
        await said_in(kernel, harmless, "Hi.", "k5", agent="shop.plain")
        open_to_all = await said_in(kernel, harmless, "Hi.", "k6", agent="shop.plain", caller=less)
        assert S.SUCCEEDED is open_to_all.state
        # As a run of a release that did not say it yet.
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update run_entries set body = replace(body, $2, '') where action_id = $1 and ordinal = 1",
                open_to_all.action_id,
                ',"saw_sensitive":false',
            )
        unsaid = await said_in(kernel, harmless, "Hi.", "k7", agent="shop.plain", caller=less)
        assert "session_sensitive" == unsaid.failure_code
