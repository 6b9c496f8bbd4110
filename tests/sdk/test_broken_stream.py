"""Streams that break between, before and after events go on without loss or duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from placet import errors
from placet.v1 import event_pb2, runtime_service_pb2
from tests.sdk.conftest import Both
from tests.sdk.support import (
    ACTION_ID,
    Script,
    admitted,
    answer_with,
    break_off,
    chunk,
    event,
    found,
    hang,
    outcome,
    refuse,
    serving,
    settled,
    succeeded,
)

Connect = Callable[[str], Both]
Code = grpc.StatusCode
FAILED = outcome("FAILED", "HANDLER_FAILED")
AMBIGUOUS = outcome("AMBIGUOUS", "EFFECT_AMBIGUOUS", advice="AFTER_WAIT", effect="UNKNOWN")


def _cursors(events: list[Any]) -> list[str]:
    return [event.cursor for event in events]


async def _stream(connect: Connect, script: Script, **options: Any) -> tuple[list[Any], Any, Any]:
    async with serving(script) as target:
        return await connect(target).events("stream", "reports.export", {}, **options)


async def test_a_whole_stream_delivers_its_events_and_output(connect: Connect) -> None:
    script = Script(ExecuteStream=[[admitted(), chunk(1), event(0), chunk(2), settled()]])
    events, stream, error = await _stream(connect, script)
    assert ["s1", "n1", "n2", "s2"] == _cursors(events)
    assert ({"orders": 3}, ACTION_ID, "s2", None) == (stream.output, stream.action_id, stream.cursor, error)


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.CANCELLED, Code.INTERNAL, Code.UNKNOWN])
async def test_a_stream_that_broke_goes_on_after_its_newest_cursor(connect: Connect, code: Any) -> None:
    script = Script(
        ExecuteStream=[[admitted(), chunk(1), break_off(code)]],
        WatchAction=[[break_off(code)], [chunk(2), break_off(code)], [chunk(3), settled()]],
    )
    events, stream, error = await _stream(connect, script)
    assert ["s1", "n1", "n2", "n3", "s2"] == _cursors(events)
    assert ({"orders": 3}, None) == (stream.output, error)
    asked = [(request.action_id, request.after_cursor) for request in script.named("WatchAction")]
    assert [(ACTION_ID, "n1"), (ACTION_ID, "n1"), (ACTION_ID, "n2")] == asked


async def test_a_stream_that_broke_before_its_first_event_is_sent_again_under_its_key(
    connect: Connect,
) -> None:
    script = Script(ExecuteStream=[[break_off(Code.UNAVAILABLE)], [admitted(), settled()]])
    events, _, error = await _stream(connect, script)
    assert (["s1", "s2"], None) == (_cursors(events), error)
    keys = {request.invocation.options.idempotency_key for request in script.named("ExecuteStream")}
    assert 1 == len(keys)


async def test_what_was_delivered_is_not_delivered_twice(connect: Connect) -> None:
    script = Script(
        ExecuteStream=[[admitted(), chunk(1), break_off(Code.UNAVAILABLE)]],
        WatchAction=[[admitted(), chunk(1), chunk(2), settled()]],
    )
    events, _, _ = await _stream(connect, script)
    assert ["s1", "n1", "n2", "s2"] == _cursors(events)


async def test_what_a_run_has_said_is_not_delivered_twice(connect: Connect) -> None:
    said = [
        event(0, delta=event_pb2.RunDelta(turn=1, request=1, text="a", number=1, attempt=1)),
        event(0, tool_started=event_pb2.ToolStarted(turn=1, call=1, number=2, attempt=1)),
        event(0, tool_finished=event_pb2.ToolFinished(turn=1, call=1, number=3, attempt=1)),
    ]
    script = Script(
        ExecuteStream=[[admitted(), *said[:2], break_off(Code.UNAVAILABLE)]],
        WatchAction=[[admitted(), *said, settled()]],
    )
    events, _, _ = await _stream(connect, script)
    assert ["s1", "n1", "n2", "n3", "s2"] == _cursors(events)


async def test_work_that_waits_to_be_repeated_is_sent_again_because_watching_runs_nothing(
    connect: Connect,
) -> None:
    requeued = event(2, requeued=event_pb2.ActionRequeued(attempt=1, cause="instance_lost"))
    second = event(3, attempt_started=event_pb2.AttemptStarted(attempt=2))
    script = Script(
        ExecuteStream=[
            [admitted(), chunk(1), break_off(Code.UNAVAILABLE)],
            [admitted(), chunk(1), requeued, second, chunk(1, attempt=2), settled(4)],
        ],
        WatchAction=[[requeued, hang]],
    )
    events, _, error = await _stream(connect, script)
    assert (["s1", "n1", "s2", "s3", "n1", "s4"], None) == (_cursors(events), error)
    assert ["ExecuteStream", "WatchAction", "ExecuteStream"] == [name for name, _ in script.requests]


async def test_work_that_was_submitted_is_only_watched_because_a_server_runs_it_again(
    connect: Connect,
) -> None:
    submitted = event(1, admitted=event_pb2.ActionAdmitted(capability="reports.export", queue="default"))
    requeued = event(2, requeued=event_pb2.ActionRequeued(attempt=1, cause="HANDLER_FAILED"))
    second = event(3, attempt_started=event_pb2.AttemptStarted(attempt=2))
    script = Script(
        ExecuteStream=[[submitted, break_off(Code.UNAVAILABLE)]],
        WatchAction=[[requeued, break_off(Code.UNAVAILABLE)], [second, chunk(1, attempt=2), settled(4)]],
    )
    events, stream, error = await _stream(connect, script)
    assert (["s1", "s2", "s3", "n1", "s4"], None) == (_cursors(events), error)
    assert {"orders": 3} == stream.output
    assert ["ExecuteStream", "WatchAction", "WatchAction"] == [name for name, _ in script.requests]


@pytest.mark.parametrize(("on_wait", "raised"), [("return", type(None)), ("fail", errors.ApprovalRequired)])
async def test_what_is_parked_is_asked_for_again_because_a_watch_does_not_end_when_people_have_to_act(
    connect: Connect, on_wait: str, raised: type[Any]
) -> None:
    submitted = event(1, admitted=event_pb2.ActionAdmitted(capability="reports.export", queue="default"))
    parked = event(2, parked=event_pb2.ActionParked(attempt=1, steps=1))
    waiting = refuse(
        Code.FAILED_PRECONDITION, "APPROVAL_REQUIRED", outcome=outcome("WAITING", "APPROVAL_REQUIRED")
    )
    script = Script(
        ExecuteStream=[
            [submitted, parked, break_off(Code.UNAVAILABLE)],
            [submitted, parked, *([] if on_wait == "return" else [waiting])],
        ],
    )
    events, _, error = await _stream(connect, script, on_wait=on_wait)
    assert (["s1", "s2"], raised) == (_cursors(events), type(error))
    assert ["ExecuteStream", "ExecuteStream"] == [name for name, _ in script.requests]


async def test_the_end_of_an_action_that_is_tried_again_is_not_taken_for_its_last(connect: Connect) -> None:
    redriven = event(3, redriven=event_pb2.ActionRedriven(generation=2, attempts=3))
    script = Script(
        WatchAction=[[admitted(), settled(2, FAILED), redriven, break_off(Code.UNAVAILABLE)], [settled(4)]]
    )
    async with serving(script) as target:
        events, stream, error = await connect(target).events("watch", ACTION_ID)
    assert (["s1", "s2", "s3", "s4"], None) == (_cursors(events), error)
    assert {"orders": 3} == stream.output
    assert ["", "s3"] == [request.after_cursor for request in script.named("WatchAction")]


async def test_a_failure_raises_after_its_last_event_with_all_the_status_says(connect: Connect) -> None:
    status = refuse(
        Code.ABORTED, "HANDLER_FAILED", outcome=FAILED, metadata={"failure_code": "card_declined"}
    )
    script = Script(ExecuteStream=[[admitted(), settled(2, FAILED), status]])
    events, _, error = await _stream(connect, script)
    assert ["s1", "s2"] == _cursors(events)
    assert (
        errors.FailedError,
        "card_declined",
        ACTION_ID,
    ) == (type(error), error.failure_code, error.action_id)


async def test_a_status_lost_after_the_last_event_is_known_from_the_event(connect: Connect) -> None:
    script = Script(ExecuteStream=[[admitted(), settled(2, FAILED), break_off(Code.UNAVAILABLE)]])
    _, _, error = await _stream(connect, script)
    assert type(error) is errors.FailedError
    assert [] == script.named("WatchAction")


async def test_a_reattached_stream_ends_when_the_effect_is_ambiguous(connect: Connect) -> None:
    ambiguous = event(2, ambiguous=event_pb2.ActionAmbiguous(outcome=AMBIGUOUS))
    script = Script(
        ExecuteStream=[[admitted(), break_off(Code.UNAVAILABLE)]],
        WatchAction=[[ambiguous, hang]],
    )
    events, _, error = await _stream(connect, script)
    assert (["s1", "s2"], errors.AmbiguousError) == (_cursors(events), type(error))


async def test_an_ambiguity_that_was_resolved_before_the_stream_is_not_the_end(connect: Connect) -> None:
    ambiguous = event(2, ambiguous=event_pb2.ActionAmbiguous(outcome=AMBIGUOUS))
    ambiguous.replayed = True
    script = Script(
        ExecuteStream=[[admitted(), break_off(Code.UNAVAILABLE)]],
        WatchAction=[[ambiguous, settled(3)]],
    )
    events, _, error = await _stream(connect, script)
    assert (["s1", "s2", "s3"], None) == (_cursors(events), error)


async def test_an_old_ambiguity_with_nothing_after_it_ends_at_the_idle_checkpoint(connect: Connect) -> None:
    ambiguous = event(2, ambiguous=event_pb2.ActionAmbiguous(outcome=AMBIGUOUS))
    ambiguous.replayed = True
    script = Script(
        ExecuteStream=[[admitted(), break_off(Code.UNAVAILABLE)]],
        WatchAction=[[ambiguous, event(0), hang]],
    )
    _, _, error = await _stream(connect, script)
    assert type(error) is errors.AmbiguousError


async def test_a_stream_out_of_time_asks_what_became_of_its_action(connect: Connect) -> None:
    script = Script(ExecuteStream=[[admitted(), hang]], GetAction=[found(succeeded('{"orders":3}'))])
    events, stream, error = await _stream(connect, script, timeout=0.5)
    assert (["s1"], {"orders": 3}, None) == (_cursors(events), stream.output, error)


async def test_a_watcher_is_told_the_ending_by_its_event_and_renewed_until_then(connect: Connect) -> None:
    ambiguous = event(2, ambiguous=event_pb2.ActionAmbiguous(outcome=AMBIGUOUS))
    script = Script(
        WatchAction=[[admitted()], [ambiguous, break_off(Code.UNAVAILABLE)], [settled(3, FAILED)]]
    )
    async with serving(script) as target:
        events, _, error = await connect(target).events("watch", ACTION_ID)
    assert (["s1", "s2", "s3"], None) == (_cursors(events), error)


async def test_a_watcher_who_has_had_the_end_is_not_kept(connect: Connect) -> None:
    script = Script(WatchAction=[[chunk(1)], []])
    async with serving(script) as target:
        events, _, error = await connect(target).events("watch", ACTION_ID, after="s2")
    assert (["n1"], None) == (_cursors(events), error)
    assert ["s2", "n1"] == [request.after_cursor for request in script.named("WatchAction")]


async def test_leaving_a_stream_early_tells_the_server() -> None:
    script = Script(ExecuteStream=[[admitted(), hang]])
    async with serving(script) as target:
        both = Both("async", target)
        async with both.client.stream("reports.export", {}) as stream:
            assert "s1" == (await anext(stream)).cursor
        await asyncio.wait_for(script.ended.wait(), 5)
        await both.close()


async def test_leaving_a_blocking_stream_early_tells_the_server() -> None:
    script = Script(ExecuteStream=[[admitted(), hang]])
    async with serving(script) as target:
        both = Both("blocking", target)
        stream = both.client.stream("reports.export", {})
        assert "s1" == (await asyncio.to_thread(next, stream)).cursor
        await asyncio.to_thread(stream.close)
        await asyncio.wait_for(script.ended.wait(), 5)
        await both.close()


def fed(number: int, *, idle: bool = False) -> event_pb2.ActionEvent:
    sent = event_pb2.ActionEvent() if idle else event(2, attempt_started=event_pb2.AttemptStarted(attempt=2))
    sent.cursor = f"f{number}"
    return sent


async def test_a_feed_that_broke_goes_on_after_its_newest_cursor_also_that_of_a_checkpoint(
    connect: Connect,
) -> None:
    script = Script(
        WatchEvents=[
            [fed(1), fed(2), break_off(Code.UNAVAILABLE)],
            [refuse(Code.UNAVAILABLE, "DRAINING")],
            [fed(3, idle=True), refuse(Code.RESOURCE_EXHAUSTED, "OVERLOADED")],
            [fed(4), break_off(Code.DEADLINE_EXCEEDED)],
            [fed(5)],
            [refuse(Code.OUT_OF_RANGE, "CURSOR_EXPIRED")],
        ]
    )
    async with serving(script) as target:
        options = {"types": ["settled"], "labels": {"a": "b"}, "from_now": True}
        events, stream, error = await connect(target).events("watch_events", **options)
    assert (["f1", "f2", "f4", "f5"], "f5") == (_cursors(events), stream.cursor)
    assert isinstance(error, errors.CursorExpiredError)
    asked = script.named("WatchEvents")
    assert ["", "f2", "f2", "f3", "f4", "f5"] == [request.after_cursor for request in asked]
    assert {("placet.action.settled", "b")} == {(r.filter.types[0], r.filter.labels["a"]) for r in asked}


async def test_a_feed_ends_with_its_time(connect: Connect) -> None:
    script = Script(WatchEvents=[[fed(1), hang]])
    async with serving(script) as target:
        events, _, error = await connect(target).events("watch_events", timeout=0.3)
    assert (["f1"], None) == (_cursors(events), error)


async def test_a_resumed_stream_that_broke_goes_on_after_its_cursor_and_ends_as_a_call_would(
    connect: Connect,
) -> None:
    script = Script(
        ResumeActionStream=[
            [admitted(), chunk(1), break_off(Code.UNAVAILABLE)],
            [refuse(Code.UNAVAILABLE, "DRAINING")],
            [chunk(2), settled()],
            [settled(), refuse(Code.ABORTED, "HANDLER_FAILED", outcome=FAILED)],
        ]
    )
    async with serving(script) as target:
        events, stream, error = await connect(target).events("resume_stream", ACTION_ID)
        _, _, failed = await connect(target).events("resume_stream", ACTION_ID, after="s1")
    assert (["s1", "n1", "n2", "s2"], None) == (_cursors(events), error)
    assert ({"orders": 3}, "s2") == (stream.output, stream.cursor)
    assert isinstance(failed, errors.FailedError)
    asked = [request.after_cursor for request in script.named("ResumeActionStream")]
    assert ["", "n1", "n1", "s1"] == asked


async def test_what_a_resumed_action_ended_with_is_not_asked_for_again(connect: Connect) -> None:
    again = outcome("FAILED", "HANDLER_FAILED", advice="SAME_KEY")
    script = Script(
        ResumeAction=[
            break_off(Code.UNAVAILABLE),
            answer_with(runtime_service_pb2.ResumeActionResponse(action=succeeded())),
            refuse(Code.UNAVAILABLE, "HANDLER_FAILED", outcome=again),
        ]
    )
    async with serving(script) as target:
        result = await connect(target).ask("resume", ACTION_ID)
        with pytest.raises(errors.FailedError):
            await connect(target).ask("resume", ACTION_ID)
    assert ({"refund": "re_1"}, ACTION_ID, 3) == (result.output, result.action_id, len(script.requests))
