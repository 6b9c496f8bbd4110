"""The stream of a run is told as it went, whatever breaks on the way: it goes on after its newest cursor, a question
whose stream broke before anything came is asked again under its key, and the answer is the reply's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

import placet
from placet.v1 import action_pb2, event_pb2, outcome_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.sdk.conftest import Both
from tests.sdk.support import (
    ACTION_ID,
    Script,
    admitted,
    answer_with,
    break_off,
    event,
    serving,
    settled,
    succeeded,
)

Connect = Callable[[str], Both]
OUTPUT = '{"parts":[{"text":"It comes."}]}'
ANSWER = answer_with(pb.ResumeActionResponse(action=succeeded(OUTPUT)))
DENIED = outcome_pb2.Outcome(kind=outcome_pb2.OUTCOME_KIND_DENIED)


def said(number: int, **delta: Any) -> event_pb2.ActionEvent:
    return event(0, delta=event_pb2.RunDelta(turn=1, request=1, number=number, attempt=1, **delta))


def asked(sequence: int, number: int) -> event_pb2.ActionEvent:
    return event(sequence, turn_requested=event_pb2.TurnRequested(turn=1, number=number, model="m"))


async def test_a_stream_that_broke_goes_on_after_its_cursor_and_its_events_are_typed(
    connect: Connect,
) -> None:
    called = event_pb2.ToolFinished(turn=1, call=1, tool="shop.pay", outcome=DENIED)
    answered = event_pb2.TurnAnswered(turn=1, finish_reason="stop")
    first = [
        admitted(),
        asked(2, 1),
        said(1, reasoning="Hm."),
        said(2, text="It"),
        break_off(grpc.StatusCode.UNAVAILABLE),
    ]
    failed = event(3, turn_failed=event_pb2.TurnFailed(turn=1, category="truncated"))
    rest = [failed, asked(4, 2), said(3, text="It comes."), event(5, turn_answered=answered)]
    last = [event(0, tool_finished=called), event(6, parked=event_pb2.ActionParked(steps=1)), settled(7)]
    script = Script(AskStream=[first], ResumeActionStream=[[*rest, *last]], ResumeAction=[ANSWER])
    async with serving(script) as target:
        both = connect(target)
        events, stream, error = await both.events("ask_stream", "shop.helper", "Where is it?")
        reply = await (stream.reply() if both.is_async else asyncio.to_thread(stream.reply))
    assert (None, "It comes.", ACTION_ID) == (error, reply.text, stream.action_id)
    plain = [(type(each).__name__, getattr(each, "text", "")) for each in events]
    assert [
        ("RunEvent", ""),
        ("TurnStarted", ""),
        ("ReasoningDelta", "Hm."),
        ("TextDelta", "It"),
        ("TurnFailed", ""),
        ("Restarted", ""),
        ("TextDelta", "It comes."),
        ("TurnAnswered", ""),
        ("ToolFinished", ""),
        ("Waiting", ""),
        ("Ended", ""),
    ] == plain
    assert (None, DENIED) == (events[7].usage, events[8].outcome)
    (again,) = script.named("ResumeActionStream")
    assert (ACTION_ID, "n2") == (again.action_id, again.after_cursor)


async def test_a_question_that_broke_before_it_was_known_is_asked_again_under_its_key(
    connect: Connect,
) -> None:
    script = Script(AskStream=[[break_off(grpc.StatusCode.UNAVAILABLE)], [admitted(), settled()]])
    async with serving(script) as target:
        events, _, error = await connect(target).events("ask_stream", "shop.helper", "Where is it?")
    assert (2, None) == (len(events), error)
    keys = {request.ask.options.idempotency_key for request in script.named("AskStream")}
    assert (1, False) == (len(keys), "" in keys)


async def test_a_run_is_joined_by_its_id_and_can_be_stopped(connect: Connect) -> None:
    script = Script(
        ResumeActionStream=[[said(4, text="Over."), settled(9)], [settled(9)]],
        CancelAction=[answer_with(pb.CancelActionResponse())],
    )
    async with serving(script) as target:
        both = connect(target)
        options: dict[str, Any] = {"after": "n3", "on_wait": "hold"}
        events, stream, error = await both.events("run_stream", ACTION_ID, **options)
        await both.events("resume_stream", ACTION_ID, **options)
        await (stream.cancel("enough") if both.is_async else asyncio.to_thread(stream.cancel, "enough"))
    assert (["TextDelta", "Ended"], None) == ([type(each).__name__ for each in events], error)
    assert isinstance(events[0], placet.TextDelta)
    (joined, plain), (cancelled,) = script.named("ResumeActionStream"), script.named("CancelAction")
    assert ("n3", action_pb2.ON_WAIT_HOLD) == (joined.after_cursor, joined.on_wait)
    assert joined == plain
    assert (ACTION_ID, "enough") == (cancelled.action_id, cancelled.reason)
