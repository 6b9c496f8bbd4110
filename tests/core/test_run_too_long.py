"""A run that has become too long for its model: what was is summed up, once, and the run goes on or says why not."""

import asyncio
import base64
from typing import Any

import pytest

from placet.agent import Budget, Memory
from placet.testing.model_servers import (
    KEY,
    AnthropicServer,
    Fail,
    OpenAIServer,
    Say,
    Stall,
    Step,
    call,
)
from placet_server.core.publication.turn import list_turns
from placet_server.core.recovery.rescue import rescue
from placet_server.harness import compaction
from placet_server.model import entry_text
from placet_server.model.lifecycle import ActionState
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, asked, open_shop, said, spent
from tests.core.conversations import conversation, said_in, session
from tests.core.kernels import declare_dead, dispatch, output, put, read, until, work_off
from tests.core.scripted import age, entries
from tests.postgres import Database

TOO_LONG = Fail(400, code="context_length_exceeded")
SUMMARY = "One and two were found."


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def look(order: str, tokens: int = 100) -> Say:
    return Say(f"Look for {order}.", call("shop-find", order=order), usage=(tokens, 20))


class Forgetful(OpenAIServer):
    """Sums up when it is asked to, and knows a conversation that was summed up by its summary: its turns are counted
    from `begin` on.
    """

    begin = 3
    summaries = 0

    def _turn_of(self, body: Any) -> int:
        text = str(body["messages"])
        if "Sum up the conversation" in text:
            self.summaries += 1
            return 9
        turn = super()._turn_of(body)
        return turn + self.begin if SUMMARY in text else turn


def script(*steps: Step) -> list[Step]:
    """Turn 9 is the summary."""
    turns = sum(isinstance(step, Say) for step in steps)
    return [*steps, *[Say("never")] * (8 - turns), Say(SUMMARY)]


async def test_a_run_past_its_bound_goes_on_from_a_summary(database: Database) -> None:
    shop = Shop(memory=Memory(compact_at_tokens=1000, keep_turns=1))
    steps = script(look("one"), look("two"), look("three"), look("four", 2000), Say("All done."))
    async with Forgetful(steps) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        assert [1, 2, 3, 4, 9, 5] == [request.turn for request in server.requests]
        assert (ActionState.SUCCEEDED, said("All done.")) == (ended.state, output(ended))
        summing, last = (request.json["messages"] for request in server.requests[-2:])
        # Not the newest turn, which stays as it was, and no call of its own.
        assert "three" in str(summing)
        assert "four" not in str(summing)
        assert "none" == server.requests[-2].json["tool_choice"]
        assert "Help me." in str(last[1])
        assert SUMMARY in str(last[1])
        assert ["system", "user", "assistant", "tool"] == [each["role"] for each in last]
        assert "found four" in str(last[3])
        turns = (await list_turns(kernel.journal, ended, after=0, page_size=9)).turns
        assert ["answer"] * 4 + ["compact", "answer"] == [turn.purpose for turn in turns]
        counters = await spent(kernel, ended.action_id)
        assert (6, 4, 2500) == (counters.turns, counters.calls, counters.input_tokens)


async def test_a_picture_and_long_results_that_no_entry_holds_together_are_summed_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As 2 MiB of a picture and half a MiB of results.
    for module in (entry_text, compaction):
        monkeypatch.setattr(module, "ENTRY_BYTES_MAX", 30_000)
    shop = Shop(tools=["shop.book"], memory=Memory(compact_at_tokens=2000))

    @shop.app.tool("shop.book", "read")
    async def book() -> str:
        return "begin " + "word " * 1400 + "end"

    picture = {"media_type": "image/png", "data": base64.b64encode(b"\x89PNG" * 5000).decode()}
    look_up = [Say("I look.", call("shop-book")) for _ in range(3)]
    async with (
        Forgetful(script(*look_up, Say("Red."))) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        server.begin = 2
        ended = await asked(kernel, value={"parts": [{"text": "What is it?"}, {"binary": picture}]})
        assert (said("Red."), 1) == (output(ended), server.summaries)
        summing, last = (str(request.json["messages"]) for request in server.requests[-2:])
        assert picture["data"] in summing
        assert picture["data"] not in last
        assert "[a picture is left out here]" in last


@pytest.mark.parametrize("answer_bytes", [24_000, 28_000, 29_990])
async def test_an_answer_that_nearly_fills_an_entry_leaves_room_for_as_much_of_the_rest_as_there_is(
    database: Database, monkeypatch: pytest.MonkeyPatch, answer_bytes: int
) -> None:
    """As one of 2.4 MiB and more beside a picture of 2 MiB: it stays as it was, and the picture was seen."""
    for module in (entry_text, compaction):
        monkeypatch.setattr(module, "ENTRY_BYTES_MAX", 32_000)
    shop = Shop(memory=Memory(compact_at_tokens=2000, keep_turns=1))
    picture = {"media_type": "image/png", "data": base64.b64encode(b"\x89PNG" * 5000).decode()}
    long = Say("x" * answer_bytes, call("shop-find", order="A-1"), usage=(3000, 9000))
    async with (
        Forgetful(script(look("one"), long, Say("Red."))) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        server.begin = 1
        ended = await asked(kernel, value={"parts": [{"text": "What is it?"}, {"binary": picture}]})
        if answer_bytes < 29_000:
            assert (said("Red."), 1) == (output(ended), server.summaries)
            last = str(server.requests[-1].json["messages"])
            assert ("x" * answer_bytes in last, picture["data"] in last) == (True, False)
        else:
            assert (ActionState.FAILED, "message_too_large") == (ended.state, ended.failure_code)
            assert "hand over references to large things" in ended.message


@pytest.mark.parametrize("helps", [True, False])
async def test_what_does_not_fit_is_summed_up_once(database: Database, helps: bool) -> None:
    shop = Shop()
    after: list[Step] = [Say("All done.")] if helps else [TOO_LONG, Say("never")]
    steps = script(look("one"), look("two"), TOO_LONG, Say("never"), *after)
    async with Forgetful(steps) as server, open_shop(database.dsn, shop, server) as kernel:
        server.begin = 2
        ended = await asked(kernel)
        assert [1, 2, 3, 9, 4] == [request.turn for request in server.requests]
        if helps:
            assert said("All done.") == output(ended)
        else:
            assert (ActionState.FAILED, "model_context_too_long") == (ended.state, ended.failure_code)


async def test_what_does_not_fit_at_once_is_past_help(database: Database) -> None:
    shop = Shop()
    async with OpenAIServer([TOO_LONG, Say("")]) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        assert (1, "model_context_too_long") == (len(server.requests), ended.failure_code)


async def test_a_process_that_dies_over_a_summary_asks_for_it_again_and_for_nothing_else(
    database: Database,
) -> None:
    shop = Shop(memory=Memory(compact_at_tokens=1000, keep_turns=1))
    steps = [
        *script(look("one"), look("two"), look("three", 2000), Say("Done."))[:-1],
        Stall(60.0),
        Say(SUMMARY),
    ]
    async with Forgetful(steps) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            action = (await put(kernel, "shop.helper", ASKED, "k")).action
            await dispatch(kernel)
            task = asyncio.ensure_future(work_off(kernel))
            await until(lambda: len(server.requests) == 4, 20.0)
            task.cancel()
            await declare_dead(kernel)
        async with open_shop(database.dsn, shop, server) as kernel:
            server.begin = 2
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            ended = await read(kernel, action.action_id)
            assert [1, 2, 3, 9, 9, 4] == [request.turn for request in server.requests]
            assert server.requests[3].body == server.requests[4].body
            assert (ActionState.SUCCEEDED, said("Done.")) == (ended.state, output(ended))
            types = [each[1] for each in await entries(kernel, action.action_id)]
            assert ["requested", "requested", "answered", "compacted", "requested", "answered"] == types[-6:]


async def test_another_wire_takes_a_request_for_a_summary_too(database: Database) -> None:
    shop = Shop(memory=Memory(compact_at_tokens=1000, keep_turns=1), budget=Budget(turns=4))
    steps = [look("one"), look("two", 2000)]
    async with AnthropicServer(steps) as server, open_shop(database.dsn, shop, server) as kernel:
        await asked(kernel)
        # The summary is of one answer, and what follows holds but the newest: this server knows neither from turn 2.
        assert [1, 2, 2, 2] == [request.turn for request in server.requests]
        summing, last = (request.json["messages"] for request in server.requests[2:])
        assert "Sum up the conversation" in str(summing[-1])
        assert "found two" in str(last[-1])
        assert {"type": "none"} == server.requests[2].json["tool_choice"]


async def test_a_session_that_has_become_long_goes_on_from_a_summary_of_it(database: Database) -> None:
    shop = Shop(memory=Memory(compact_at_tokens=1500))
    steps = script(Say("Hello."), Say("It is red."), Say("Bye."))
    async with Forgetful(steps) as server, open_shop(database.dsn, shop, server) as kernel:
        server.begin = 0
        one = await session(kernel)
        for number, words in enumerate(("long " * 1200, "What of it?", "Thanks."), start=1):
            await said_in(kernel, one, words, f"k{number}")
        assert [1, 9, 2, 3] == [request.turn for request in server.requests]
        summing, second, third = (request.json["messages"] for request in server.requests[1:])
        assert ["system", "user", "user"] == [each["role"] for each in summing]
        assert "long long" in str(summing)
        assert "long long" not in str(second)
        assert ["system", "user", "assistant", "user"] == [each["role"] for each in second]
        assert (SUMMARY in str(second[1]), "What of it?" in str(second[3])) == (True, True)
        assert second == third[: len(second)]
        # People are shown what was said, and no summary.
        said_there = [text for _, _, text in await conversation(kernel, one)]
        assert ["long " * 1200, "Hello.", "What of it?", "It is red.", "Thanks.", "Bye."] == said_there
