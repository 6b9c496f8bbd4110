"""An agent's run over a real model server: what was answered is not asked for again, and no call is made twice,
whatever ends the process. The model's ledger is looked at first.
"""

import asyncio
import json

import pytest

from placet.agent import ProviderRetry
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
from placet_server.core.kernel import Kernel
from placet_server.core.publication import turn as turns
from placet_server.core.publication.turn import list_turns
from placet_server.core.recovery.rescue import rescue
from placet_server.harness.program import _Loop
from placet_server.model.action import Action
from placet_server.model.entry import EntryType, Opened
from placet_server.model.entry_text import of_text
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from tests.core.agents import KEY_VARIABLE, TOOLS, Shop, asked, open_shop, said, spent
from tests.core.kernels import declare_dead, dispatch, output, put, read, until, work_off
from tests.core.parking import again, steps
from tests.core.scripted import age, bodies, entries
from tests.postgres import Database

LOOK = Say("I look.", call("shop-find", order="A-1"), call("shop-count", order="A-1"))
SCRIPT = [LOOK, Say("Once more.", call("shop-count", order="A-2")), Say("All done.")]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.mark.parametrize("wire", [OpenAIServer, AnthropicServer])
async def test_a_run_asks_calls_tells_and_ends_and_is_told_when_it_is_asked_again(
    database: Database, wire: type[ModelServer]
) -> None:
    shop = Shop()
    async with wire(SCRIPT) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        assert [1, 2, 3] == [request.turn for request in server.requests]
        assert (ActionState.SUCCEEDED, EffectState.DONE, 1) == (ended.state, ended.effect, ended.attempt)
        assert said("All done.") == output(ended)
        assert ["A-1", "A-2"] == shop.counted
        children = await steps(kernel, ended.action_id)
        assert ["turn/1/call/1", "turn/1/call/2", "turn/2/call/1"] == [each.step_path for each in children]
        counters = await spent(kernel, ended.action_id)
        assert (3, 3, 3, 300, 60, 0) == (
            counters.turns,
            counters.requests,
            counters.calls,
            counters.input_tokens,
            counters.output_tokens,
            counters.reserved_tokens,
        )
        again = await asked(kernel)
        assert (ended.action_id, 3) == (again.action_id, len(server.requests))


async def test_the_model_is_told_what_the_calls_have_given_and_what_holds_is_pinned(
    database: Database,
) -> None:
    shop = Shop()
    async with OpenAIServer(SCRIPT) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        body = server.requests[1].json
        results = [each["content"] for each in body["messages"] if each["role"] == "tool"]
        assert ['"found A-1"', '"counted A-1"'] == results
        assert "Be brief." in json.dumps(body["messages"][0])
        (text,) = await bodies(kernel, ended.action_id, "opened")
        (first, *_) = await entries(kernel, ended.action_id)
        assert (1, "opened", 0, 1) == first
        opened = of_text(EntryType.OPENED, text)
        assert isinstance(opened, Opened)
        assert sorted(TOOLS) == [tool.name for tool in opened.tools]
        assert {"1"} == {tool.version for tool in opened.tools}


async def test_a_run_whose_process_dies_in_a_request_asks_that_turn_alone_again(database: Database) -> None:
    shop = Shop()
    script: list[Step] = [LOOK, Stall(60.0), SCRIPT[1], SCRIPT[2]]
    async with OpenAIServer(script) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            action = (await put(kernel, "shop.helper", {"parts": [{"text": "Help me."}]}, "k")).action
            await dispatch(kernel)
            task = asyncio.ensure_future(work_off(kernel))
            await until(lambda: len(server.requests) == 2, 20.0)
            task.cancel()
            await declare_dead(kernel)
        async with open_shop(database.dsn, shop, server) as kernel:
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            ended = await read(kernel, action.action_id)
            assert [1, 2, 2, 3] == [request.turn for request in server.requests]
            assert server.requests[1].body == server.requests[2].body
            assert (ActionState.SUCCEEDED, 2) == (ended.state, ended.attempt)
            assert ["A-1", "A-2"] == shop.counted
            counters = await spent(kernel, ended.action_id)
            # What nobody knows the end of stays charged.
            assert (3, 4) == (counters.turns, counters.requests)
            assert counters.reserved_tokens > 0


async def died(database: Database, shop: Shop, server: ModelServer, *, requests: int) -> Action:
    """A run whose process has died in this request, an hour after it began it."""
    async with open_shop(database.dsn, shop, server) as kernel:
        action = (await put(kernel, "shop.helper", {"parts": [{"text": "Help me."}]}, "k")).action
        await dispatch(kernel)
        task = asyncio.ensure_future(work_off(kernel))
        await until(lambda: len(server.requests) == requests, 20.0)
        task.cancel()
        await declare_dead(kernel)
        await hour_passes(kernel)
    return action


async def hour_passes(kernel: Kernel) -> None:
    """Since what any run has remembered until now."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute(
            "update events set create_time = create_time - interval '1 hour' where type like 'turn_%'"
        )


async def test_a_request_that_was_lost_is_a_try_and_the_time_until_then_counts(database: Database) -> None:
    shop = Shop(provider_retry=ProviderRetry(tries_max=1))
    async with OpenAIServer([Stall(60.0), Say("Done.")]) as server:
        action = await died(database, shop, server, requests=1)
        async with open_shop(database.dsn, shop, server) as kernel:
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            ended = await read(kernel, action.action_id)
            assert (ActionState.EXHAUSTED, "RETRY_BUDGET") == (ended.state, ended.reason)
            assert 1 == len(server.requests)
            assert "" == await again(kernel, action.action_id)
            await work_off(kernel)
            assert said("Done.") == output(await read(kernel, action.action_id))
            assert (await spent(kernel, action.action_id)).active_ms > 3_600_000


async def test_a_redriven_run_that_dies_after_its_failure_has_no_try_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = asyncio.Event()

    async def hang(*_: object) -> None:
        stored.set()
        await asyncio.Event().wait()

    async with OpenAIServer([*[Fail(429, retry_after="9999")] * 9, Say("Done.")]) as server:
        async with open_shop(database.dsn, Shop(), server) as kernel:
            action = await asked(kernel)
            assert "" == await again(kernel, action.action_id)
            with monkeypatch.context() as patch:
                patch.setattr(_Loop, "_wait_after", hang)
                task = asyncio.ensure_future(work_off(kernel))
                await stored.wait()
                task.cancel()
                await declare_dead(kernel)
        async with open_shop(database.dsn, Shop(), server) as kernel:
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            # One by the run, and one by who has redriven it.
            assert 2 == len(server.requests)
            assert ActionState.EXHAUSTED is (await read(kernel, action.action_id)).state


async def test_no_turn_is_left_out_where_a_page_ends_within_the_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "ENTRIES_READ_MAX", 3)
    async with OpenAIServer(SCRIPT) as server, open_shop(database.dsn, Shop(), server) as kernel:
        ended = await asked(kernel)
        found, page = [], await list_turns(kernel.journal, ended, after=0, page_size=50)
        while page.next_after:
            found += [each.turn for each in page.turns]
            page = await list_turns(kernel.journal, ended, after=page.next_after, page_size=50)
        assert [1, 2, 3] == [*found, *(each.turn for each in page.turns)]


async def test_turns_are_told_page_by_page(database: Database) -> None:
    shop = Shop()
    async with OpenAIServer(SCRIPT) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        first = await list_turns(kernel.journal, ended, after=0, page_size=2)
        rest = await list_turns(kernel.journal, ended, after=first.next_after, page_size=2)
        assert ([1, 2], [3], 0) == (
            [turn.turn for turn in first.turns],
            [turn.turn for turn in rest.turns],
            rest.next_after,
        )
        called = [step.action_id for step in await steps(kernel, ended.action_id)]
        assert called == [each.action_id for turn in first.turns for each in turn.calls]
        assert [1, 1] == [turn.requests for turn in first.turns]
        assert [] == list(
            (
                await list_turns(
                    kernel.journal, (await steps(kernel, ended.action_id))[0], after=0, page_size=2
                )
            ).turns
        )
