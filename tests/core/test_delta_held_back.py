"""What a model says is told while it says it, also when it falls silent in the middle; what it said in a try that came
to nothing is void, and nobody takes it for an answer; and who goes on with a run goes on with its numbers.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from placet.testing.model_servers import (
    KEY,
    AnthropicServer,
    ModelServer,
    OpenAIServer,
    Say,
    Stall,
    Step,
    Truncate,
    call,
)
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.rescue import rescue
from placet_server.model.event import LANE, Event, EventType
from placet_server.rpc.convert.event import event_message
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, asked, end_of, open_shop, said
from tests.core.kernels import ALICE, declare_dead, dispatch, output, put, read, work_off
from tests.core.parking import parked
from tests.core.people import ANNA, APPROVE, vote
from tests.core.scripted import age
from tests.postgres import Database

# Two pieces of the server.
TEXT = "It is on its way to you:"
WHOLE = Say(TEXT + " it comes tomorrow.", reasoning="Where is it, then?")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def events_of(kernel: Kernel, action_id: str, after: str = "") -> AsyncGenerator[Event, None]:
    async with aclosing(watch_action(kernel.journal, ALICE, action_id, after)) as items:
        async for item in items:
            if isinstance(item, Event):
                yield item


async def heard_until(
    kernel: Kernel, action_id: str, is_enough: Callable[[list[Event]], bool]
) -> list[Event]:
    """From the beginning."""
    heard: list[Event] = []
    async with asyncio.timeout(20.0), aclosing(events_of(kernel, action_id)) as events:
        async for event in events:
            heard.append(event)
            if is_enough(heard):
                break
    return heard


def texts(events: list[Event], kind: str = "text", **where: Any) -> str:
    """What was said in the lane, one after the other."""
    return "".join(
        event.body.get(kind, "")
        for event in events
        if event.type is EventType.DELTA and where.items() <= event.body.items()
    )


def names(events: list[Event]) -> list[str]:
    """Of what the lane says each kind once, where it begins."""
    told: list[str] = []
    for event in events:
        if event.type not in LANE or told[-1] != event.type.value:
            told.append(event.type.value)
    return told


def assert_numbered(events: list[Event]) -> None:
    """Within each attempt without a gap, and nothing twice."""
    for attempt in {event.attempt for event in events if event.type in LANE}:
        numbers = [event.number for event in events if event.type in LANE and event.attempt == attempt]
        assert list(range(1, len(numbers) + 1)) == numbers


@pytest.mark.parametrize("wire", [OpenAIServer, AnthropicServer])
async def test_all_that_is_said_is_told_while_the_model_is_silent(
    database: Database, wire: type[ModelServer]
) -> None:
    # The last piece stands alone, and nothing follows it.
    silent = Stall(60.0, end_of(wire, WHOLE, TEXT[12:]))
    async with wire([silent, WHOLE]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        await dispatch(kernel)
        heard = await heard_until(kernel, action.action_id, lambda told: texts(told) == TEXT)
        assert WHOLE.reasoning == texts(heard, "reasoning")
        opened = ["admitted", "attempt_started", "run_opened", "turn_requested", "delta"]
        assert (opened, True) == (names(heard), all(event_message(event).type for event in heard))
        # Nothing of it is an answer.
        await cancel_action(kernel.engine, ALICE, action.action_id, "enough")
        await work_off(kernel)
        ended = [event async for event in events_of(kernel, action.action_id)]
        assert [*opened, "settled"] == [name for name in names(ended) if name != "cancel_requested"]
        assert (TEXT, None) == (texts(ended), output(await read(kernel, action.action_id)))
        assert_numbered(ended)


async def test_what_was_said_in_a_try_that_was_cut_off_is_void_and_the_turn_is_asked_again(
    database: Database,
) -> None:
    plain = Say(WHOLE.text)
    script: list[Step] = [Truncate(end_of(OpenAIServer, plain, TEXT[12:])), plain]
    async with OpenAIServer(script) as server, open_shop(database.dsn, Shop(), server) as kernel:
        ended = await asked(kernel)
        events = [event async for event in events_of(kernel, ended.action_id)]
        assert [1, 1] == [request.turn for request in server.requests]
        assert said(WHOLE.text) == output(ended)
        # The first piece is told at once; what was held when it broke off is told to nobody.
        assert (TEXT[:12], WHOLE.text) == (texts(events, request=1), texts(events, request=2))
        again = ["turn_requested", "delta", "turn_failed", "turn_requested", "delta", "turn_answered"]
        assert again == names(events)[3:-1]
        assert_numbered(events)


async def test_a_run_that_was_parked_goes_on_with_its_numbers_and_tells_of_each_call_once(
    database: Database,
) -> None:
    pays = Say("I pay.", call("shop-pay", order="A-1"), call("shop-count", order="A-2"), call("shop-no"))
    async with OpenAIServer([pays, WHOLE]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        waiting = await asked(kernel)
        shown = await with_family_waits(kernel.journal, await parked(kernel, waiting.action_id))
        heard = await heard_until(kernel, waiting.action_id, lambda told: told[-1].type is EventType.PARKED)
        await vote(kernel, shown.waits[0].approval_id, ANNA, APPROVE)
        await work_off(kernel)
        rest = [event async for event in events_of(kernel, waiting.action_id, heard[-1].cursor)]
        whole = [event async for event in events_of(kernel, waiting.action_id)]
    called = [e for e in whole if e.type in (EventType.TOOL_STARTED, EventType.TOOL_FINISHED)]
    told = sorted((e.type.value, e.body["call"], e.body.get("waiting", e.body.get("kind"))) for e in called)
    started = [("tool_started", 1, True), ("tool_started", 2, False)]
    assert [("tool_finished", 1, "SUCCEEDED"), ("tool_finished", 2, "SUCCEEDED"), *started] == told
    answered = next(e for e in whole if e.type is EventType.TURN_ANSWERED)
    assert {each["action_id"] for each in answered.body["calls"]} == {
        "",
        *(e.body["action_id"] for e in called),
    }
    assert [(e.cursor, e.body) for e in whole] == [(e.cursor, e.body) for e in (*heard, *rest)]
    assert_numbered(whole)


async def test_what_a_lost_process_was_told_is_void_and_calls_are_told_of_once(database: Database) -> None:
    shop = Shop()
    looks = Say("I look.", call("shop-count", order="A-1"))
    silent = Stall(60.0, end_of(OpenAIServer, WHOLE, TEXT[12:]))
    async with OpenAIServer([looks, silent, WHOLE]) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            action = (await put(kernel, "shop.helper", ASKED, "k")).action
            working = asyncio.ensure_future(work_off(kernel))
            lost = await heard_until(kernel, action.action_id, lambda told: texts(told, turn=2) == TEXT)
            working.cancel()
            await declare_dead(kernel)
        async with open_shop(database.dsn, shop, server) as kernel:
            await rescue(kernel.journal)
            await age(kernel)
            await work_off(kernel)
            rest = [event async for event in events_of(kernel, action.action_id, lost[-1].cursor)]
            whole = [event async for event in events_of(kernel, action.action_id)]
    assert [1, 2, 2] == [request.turn for request in server.requests]
    assert [(e.cursor, e.body) for e in whole] == [(e.cursor, e.body) for e in (*lost, *rest)]
    assert ["requeued", "attempt_started", "turn_requested", "delta", "turn_answered"] == names(rest)[-6:-1]
    assert WHOLE.text == texts(whole, turn=2, request=2)
    assert (TEXT, {2}) == (texts(lost, turn=2), {e.attempt for e in rest if e.type is EventType.DELTA})
    assert 2 == sum(e.type in (EventType.TOOL_STARTED, EventType.TOOL_FINISHED) for e in whole)
    assert_numbered(whole)
