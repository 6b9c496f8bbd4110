"""A session that has become long goes on: its older part is summed up, by requests that fit, before it is too much for
its model, or to be read, or to be paid for; and no message, however long, stands in its way.
"""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from placet.agent import Budget, Memory
from placet.testing.model_servers import KEY, OpenAIServer, Say, Step, call
from placet_server.core.publication import session_history as history
from placet_server.core.publication.boundary import BoundaryName
from placet_server.core.publication.session import get_session
from placet_server.harness import compaction
from placet_server.harness.history import LEFT_OUT
from placet_server.model.errors import PayloadTooLarge, StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store import session_run as session_runs
from tests.core.agents import KEY_VARIABLE, Shop, open_shop, said
from tests.core.conversations import put_in, roles, said_in, session
from tests.core.kernels import ALICE, output, put, read, states, work_off
from tests.core.scripted import age
from tests.core.test_run_too_long import SUMMARY, TOO_LONG, Forgetful, script
from tests.postgres import Database

S = ActionState
LONG = "word " * 300


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def test_what_does_not_fit_is_summed_up_by_less_and_the_session_goes_on(database: Database) -> None:
    # Nobody knows what the model takes: two answered turns, and no more.
    steps: list[Step] = [Say("One."), Say("Two."), TOO_LONG, Say("Never.")]
    async with OpenAIServer(steps) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        ends = [await said_in(kernel, one, LONG, f"k{number}") for number in range(4)]
        assert [S.SUCCEEDED] * 4 == [end.state for end in ends]
        refused, summing, after = (request.json["messages"] for request in server.requests[2:5])
        assert len(str(summing)) < len(str(refused))
        # The newest turn, and what is asked, are not in it, but stay as they were.
        assert refused[1:4] == summing[1:4]
        assert refused[-2:] == after[-2:]


async def test_a_summary_that_does_not_fit_is_asked_for_of_less(database: Database) -> None:
    begin: list[Step] = [Say("One."), Say("Two.")]
    steps = {"": [*begin, Say("Three.")]}
    async with OpenAIServer(steps) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        for number in range(3):
            await said_in(kernel, one, LONG, f"k{number}")
        # From now on its model takes less.
        steps[""] = [*begin, TOO_LONG, Say("Never."), TOO_LONG, Say("Never.")]
        end = await said_in(kernel, one, LONG, "k3")
        asked = [each.turn for each in server.requests[3:]]
        assert (S.SUCCEEDED, [4, 3, 2, 3, 2, 2]) == (end.state, asked)


async def test_a_run_that_is_stopped_with_a_summary_forgets_nothing_of_what_stays(database: Database) -> None:
    answered: list[str] = []

    def stops_with_the_second(name: BoundaryName, capability: str) -> None:
        if name == "turn_answered":
            answered.append(capability)
            if len(answered) == 2:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    shop = Shop(memory=Memory(compact_at_tokens=800, keep_turns=1))
    async with Forgetful(script(Say("Hello."), Say("It is red."))) as server:
        server.begin = 0
        async with open_shop(database.dsn, shop, server, hook=stops_with_the_second) as kernel:
            one = await session(kernel)
            await said_in(kernel, one, LONG * 3, "k1")
            action = await said_in(kernel, one, "What of it?", "k2")
            assert (S.QUEUED, 2) == (action.state, len(answered))
        async with open_shop(database.dsn, shop, server) as kernel:
            await age(kernel)
            await work_off(kernel)
            assert said("It is red.") == output(await read(kernel, action.action_id))
            assert [1, 9, 2] == [request.turn for request in server.requests]
            head, *stayed = roles(server.requests[-1])
            assert SUMMARY in head
            assert ["assistant", "user: What of it?"] == stayed


async def test_a_session_is_summed_up_before_it_cannot_be_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Step] = [Say("Hello.")] * 8
    shop = Shop(tools=())
    async with OpenAIServer(steps) as server, open_shop(database.dsn, shop, server) as kernel:
        monkeypatch.setattr(compaction, "HEAVY_BYTES", 10_000)
        monkeypatch.setattr(history, "BYTES_MAX", 20_000)
        one = await session(kernel)
        ends = [await said_in(kernel, one, LONG, f"k{number}") for number in range(7)]
        assert [""] * 7 == [end.failure_code for end in ends]
        assert [r for r in server.requests if "Sum up the conversation" in r.body.decode()]


async def test_what_cannot_be_read_whole_is_not_read_on_nor_anything_twice(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Step] = [Say("Hello.")] * 3
    async with OpenAIServer(steps) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        for number in range(3):
            await said_in(kernel, one, "Hé.", f"k{number}")
        past = await history.read_past(kernel.journal, "acme", one, 3, bytes_max=2**20)
        assert [[1, 2, 3]] * 3 == [[entry.ordinal for entry in run.entries] for run in past]
        look, looked_at = session_runs.list_remembered, []

        async def away_every_second_time(*place: Any, **bounds: Any) -> Any:
            looked_at.append(bounds["after"])
            if len(looked_at) % 2 == 0:
                raise StoreUnavailable(detail="a page takes too long")
            return await look(*place, **bounds)

        # A look has time for one entry, and the store is away between any two.
        monkeypatch.setattr(session_runs, "list_remembered", away_every_second_time)
        monkeypatch.setattr(history, "PAGE_BYTES_MAX", 1)
        journal = replace(kernel.journal, poll_seconds=0.001)
        assert past == await history.read_past(journal, "acme", one, 3, bytes_max=2**20)
        places = [(3, 0), *((number, ordinal) for number in (3, 2, 1) for ordinal in (1, 2, 3))]
        assert places == list(dict.fromkeys(looked_at))
        looked_at.clear()
        (newest,) = await history.read_past(journal, "acme", one, 3, bytes_max=1)
        assert (True, past[-1].entries, 3) == (newest.is_left_out, newest.entries, looked_at[-1][0])
        # Of words in any tongue the bytes count.
        size = history.size_of(past[0].entries)
        assert sum(len(entry.body.encode()) for entry in past[0].entries) == size
        assert sum(len(entry.body) for entry in past[0].entries) < size


class Small(Forgetful):
    """Its model takes so many bytes."""

    takes = 40_000

    def _scripted(self, request: Any, body: Any) -> Any:
        if len(request.body) > self.takes:
            return self._answer(TOO_LONG, Say(""), body, request.turn)
        return super()._scripted(request, body)


async def test_one_message_that_is_too_long_for_any_request_is_summed_up_by_its_ends(
    database: Database,
) -> None:
    async with Small(script(Say("Hello."), Say("Bye."))) as server:
        server.begin = 0
        async with open_shop(database.dsn, Shop(), server) as kernel:
            one = await session(kernel)
            failed = await said_in(kernel, one, "begin " + "word " * 20_000 + "end", "k1")
            assert (1, "model_context_too_long") == (len(server.requests), failed.failure_code)
            ends = [await said_in(kernel, one, words, words) for words in ("Hi.", "Thanks.")]
            assert [said("Hello."), said("Bye.")] == [output(end) for end in ends]
            asked = [len(request.body) for request in server.requests[1:]]
            # With it, for a summary of it, of much of it, of some of it; and from then on without it.
            assert [True] * 3 + [False] * 3 == [size > server.takes for size in asked]
            clipped = str(server.requests[4].json["messages"])
            assert "begin word" in clipped
            assert "bytes are left out here" in clipped
            assert "word end" in clipped
            assert SUMMARY in str(server.requests[5].json["messages"])


@pytest.mark.parametrize("how", ["answer", "arguments"])
async def test_what_a_model_said_itself_is_no_longer_for_another_than_that_one_takes(
    database: Database, how: str
) -> None:
    shop = Shop()
    shop.app.agent("shop.small", model="other")
    long = "word " * 12_000
    said_first = [Say(long)] if how == "answer" else [Say("", call("shop-find", order=long)), Say("Done.")]
    async with Small({"model-x": said_first, "model-y": script(Say("Fine."))}) as server:
        server.begin, server.takes = 0, 10**6
        async with open_shop(database.dsn, shop, server) as kernel:
            one = await session(kernel)
            await said_in(kernel, one, "Go.", "k1")
            server.takes = 40_000
            ended = await said_in(kernel, one, "And now?", "k2", agent="shop.small")
            assert S.SUCCEEDED is ended.state
            assert SUMMARY in str(server.requests[-1].json["messages"])


@pytest.mark.parametrize(("turns", "runs"), [(6, 1), (3, 2), (2, 3)])
async def test_whoever_has_few_turns_sums_up_a_session_that_is_much_too_long_before_they_are_spent(
    database: Database, turns: int, runs: int
) -> None:
    shop = Shop(tools=())
    shop.app.agent("shop.small", model="other", budget=Budget(turns=turns))
    first = [Say(f"Hello {number}.") for number in range(8)]
    async with Small({"model-x": first, "model-y": script(Say("Fine."))}) as server:
        server.begin, server.takes = 0, 10**6
        async with open_shop(database.dsn, shop, server) as kernel:
            one = await session(kernel)
            for number in range(len(first)):
                await said_in(kernel, one, "word " * 6000, f"k{number}")
            server.takes = 40_000
            ends = [await said_in(kernel, one, "And?", f"s{n}", agent="shop.small") for n in range(runs)]
            assert [S.EXHAUSTED] * (runs - 1) + [S.SUCCEEDED] == [end.state for end in ends]


async def test_a_result_that_is_too_long_for_any_request_ends_its_run_alone(database: Database) -> None:
    shop = Shop(tools=["shop.book"])

    @shop.app.tool("shop.book", "read")
    async def book() -> str:
        return "word " * 20_000

    async with Small(script(Say("I look.", call("shop-book")), Say("It is long."))) as server:
        server.begin = 1
        async with open_shop(database.dsn, shop, server) as kernel:
            one = await session(kernel)
            failed = await said_in(kernel, one, "Read it.", "k1")
            assert "model_context_too_long" == failed.failure_code
            assert said("It is long.") == output(await said_in(kernel, one, "And?", "k2"))


async def test_what_is_too_much_to_be_read_is_left_out_and_the_model_is_told_so(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Step] = [Say("Hello.")] * 3
    async with OpenAIServer(steps) as server, open_shop(database.dsn, Shop(), server) as kernel:
        one = await session(kernel)
        await said_in(kernel, one, "Hi.", "k1")
        monkeypatch.setattr(history, "BYTES_MAX", 1)
        assert said("Hello.") == output(await said_in(kernel, one, "And?", "k2"))
        assert [f"user: {LEFT_OUT}", "user: And?"] == roles(server.requests[-1])


async def test_a_session_is_summed_up_before_no_run_could_pay_for_it(database: Database) -> None:
    steps: list[Step] = [Say("Hello.")] * 8
    shop = Shop(tools=(), budget=Budget(tokens=15_000))
    async with OpenAIServer(steps) as server, open_shop(database.dsn, shop, server) as kernel:
        one = await session(kernel)
        ends = [await said_in(kernel, one, LONG * 3, f"k{number}") for number in range(7)]
        assert [S.SUCCEEDED] * 7 == [end.state for end in ends]
        assert LEFT_OUT not in server.requests[-1].body.decode()
        assert [r for r in server.requests if "Sum up the conversation" in r.body.decode()]


async def test_more_words_than_its_model_could_ever_be_told_are_refused_at_the_door(
    database: Database,
) -> None:
    async with (
        OpenAIServer([Say("Hello.")]) as server,
        open_shop(database.dsn, Shop(), server, context_tokens=1000) as kernel,
    ):
        one = await session(kernel)
        with pytest.raises(PayloadTooLarge) as refused:
            await put_in(kernel, one, "word " * 2000, "k1")
        assert (10_000, 8000) == (refused.value.bytes, refused.value.bytes_max)
        assert 0 == (await get_session(kernel.journal, ALICE, one)).run_count


async def test_what_no_entry_holds_is_refused_at_the_door_though_the_input_is_within_its_bound(
    database: Database,
) -> None:
    """A JSON value is told as text, each quote of which is escaped."""
    async with OpenAIServer([]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        with pytest.raises(PayloadTooLarge) as refused:
            await put(kernel, "shop.helper", {"parts": [{"json": [""] * 700_000}]}, "k1")
        assert refused.value.bytes_max == 3 * 2**20 < refused.value.bytes
        assert ([], []) == (await states(kernel), server.requests)
