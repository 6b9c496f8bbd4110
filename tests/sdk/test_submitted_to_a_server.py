"""Both clients against a server that runs what nobody waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from placet import CancelCount, Submission, errors
from placet.result import Submitted
from placet.status import error_of_action
from placet.testing import Server, server
from placet.v1.action_pb2 import ActionState
from tests.sdk import desk
from tests.sdk.conftest import Both

Connect = Callable[[str], Both]
UNKNOWN_ID = "0199b0c0-0000-7000-8000-000000000009"


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    monkeypatch.setenv(desk.FOLDER_VARIABLE, str(tmp_path))
    async with server(desk.app) as started:
        yield started


@pytest.fixture
def both(connect: Connect, running: Server) -> Both:
    made = connect(running.target)
    made.client._token = running.token
    return made


def _state(number: ActionState.ValueType) -> str:
    return ActionState.Name(number).removeprefix("ACTION_STATE_")


async def test_what_is_submitted_runs_once_under_its_key_and_can_be_waited_for(
    both: Both, tmp_path: Path
) -> None:
    first = await both.ask("submit", "desk.pay", {"amount": "1.00"}, key="k", queue="till", priority=3)
    action = await both.ask("wait", first.action_id, timeout=30.0)
    again = await both.ask("submit", "desk.pay", {"amount": "1.00"}, key="k")
    called = await both.ask("call", "desk.pay", {"amount": "1.00"}, key="k")
    assert ("SUCCEEDED", "till", 3, 1) == (
        _state(action.state),
        action.queue,
        action.priority,
        action.attempt,
    )
    assert (False, True, True) == (first.attached, again.attached, called.attached)
    assert {first.action_id} == {again.action_id, called.action_id, action.action_id}
    assert ("SUCCEEDED", 1) == (_state(again.action.state), desk.marks(tmp_path, "pay"))
    with pytest.raises(errors.ConflictError):
        await both.ask("submit", "desk.pay", {"amount": "2.00"}, key="k")


async def test_what_a_gate_refuses_is_refused_at_once(both: Both) -> None:
    with pytest.raises(errors.InvalidRequestError) as caught:
        await both.ask("submit", "desk.pay", {"amount": 1})
    assert "INPUT_SCHEMA_VIOLATION" == caught.value.reason
    with pytest.raises(errors.InvalidRequestError):
        await both.ask("submit", "desk.pay", {"amount": "1.00"}, queue="Not a name")
    assert [] == list(await both.ask("queues"))


async def test_a_capability_that_takes_no_key_is_submitted_all_the_same(both: Both) -> None:
    submitted = await both.ask("submit", "desk.add", {"a": 1, "b": 2})
    action = await both.ask("wait", submitted.action_id, timeout=30.0)
    assert ("", "3") == (action.idempotency_key, action.output_json)


async def test_delayed_work_waits_for_its_time_and_is_counted_meanwhile(both: Both, running: Server) -> None:
    submitted = await both.ask("submit", "desk.pay", {"amount": "1.00"}, queue="later", delay=3600)
    waited = await both.ask("wait", submitted.action_id, timeout=1.0)
    queues = await both.ask("queues")
    assert ("QUEUED", 0) == (_state(waited.state), waited.attempt)
    assert [("later", 0, 1, False)] == [(q.name, q.ready, q.delayed, q.HasField("oldest")) for q in queues]
    running.clock.advance(3601)
    action = await both.ask("wait", submitted.action_id, timeout=30.0)
    assert "SUCCEEDED" == _state(action.state)


async def test_waiting_work_is_cancelled_at_once(both: Both) -> None:
    submitted = await both.ask("submit", "desk.pay", {"amount": "1.00"}, delay=3600)
    action = await both.ask("cancel", submitted.action_id, "not needed")
    action = await both.ask("wait", action.action_id, timeout=30.0)
    assert ("CANCELLED", 0) == (_state(action.state), action.attempt)
    assert [] == list(await both.ask("queues"))


async def test_a_spent_budget_keeps_the_last_failure_and_is_redriven_once_it_can_succeed(
    both: Both, tmp_path: Path
) -> None:
    submitted = await both.ask("submit", "desk.post", {"text": "hello"}, key="letter")
    action = await both.ask("wait", submitted.action_id, timeout=30.0)
    error = error_of_action(action)
    assert isinstance(error, errors.ExhaustedError)
    assert ("RETRY_BUDGET", "closed", "NOT_DONE") == (error.reason, error.failure_code, error.effect)
    assert 2 == desk.marks(tmp_path, "knock")
    dead = await both.pages("dead_letters", capabilities=["desk.post"], reason="RETRY_BUDGET")
    assert [submitted.action_id] == [letter.action_id for letter in dead]

    (looked,) = await both.ask("redrive", capabilities=["desk.post"], validate_only=True)
    assert (True, "EXHAUSTED") == (looked.changed, _state(looked.state))
    (tmp_path / "open").touch()
    (done,) = await both.ask("redrive", capabilities=["desk.post"], reason="they opened")
    assert (True, submitted.action_id) == (done.changed, done.action_id)
    action = await both.ask("wait", submitted.action_id, timeout=30.0)
    assert ("SUCCEEDED", 2, "letter", 3) == (
        _state(action.state),
        action.generation,
        action.idempotency_key,
        action.attempt,
    )
    assert (1, []) == (desk.marks(tmp_path, "post"), await both.pages("dead_letters"))

    events, stream, error = await both.events("watch", submitted.action_id)
    kinds = [event.WhichOneof("event") for event in events]
    assert (2, 1, None, "hello") == (kinds.count("settled"), kinds.count("redriven"), error, stream.output)
    redriven = events[kinds.index("redriven")].redriven
    assert (2, "they opened") == (redriven.generation, redriven.reason)


async def test_what_succeeded_or_does_not_exist_is_not_redriven_and_says_why(both: Both) -> None:
    result = await both.ask("call", "desk.pay", {"amount": "1.00"})
    results = await both.ask("redrive", [result.action_id, UNKNOWN_ID])
    assert [(False, "effect_done"), (False, "not_found")] == [
        (each.changed, each.refused_rule) for each in results
    ]


async def test_a_stream_of_a_submitted_action_shows_its_attempts(both: Both, tmp_path: Path) -> None:
    (tmp_path / "open").touch()
    submitted = await both.ask("submit", "desk.post", {"text": "hello"}, key="letter")
    events, stream, error = await both.events("stream", "desk.post", {"text": "hello"}, key="letter")
    kinds = [event.WhichOneof("event") for event in events]
    assert (None, submitted.action_id, "hello") == (error, stream.action_id, stream.output)
    assert ["admitted", "attempt_started", "effect_started", "settled"] == kinds
    assert ("default", 1) == (events[0].admitted.queue, desk.marks(tmp_path, "post"))


async def test_a_batch_is_stored_item_by_item_and_again_only_once(both: Both, tmp_path: Path) -> None:
    items = [
        Submission("desk.pay", {"amount": "1.00"}, key="b1", queue="till", priority=2),
        Submission("desk.pay", {"amount": 1}, key="b2"),
        Submission("desk.add", {"a": 1, "b": 2}),
        Submission("desk.pay", {"amount": "1.00"}, key="b1", queue="till"),
        Submission("desk.pay", {"amount": "2.00"}, key="b1"),
        Submission("desk.pay", {"amount": "1.00"}, key="b3", queue="Not a name"),
        Submission("desk.none", {}),
    ]
    first = await both.ask("submit_batch", items)
    again = await both.ask("submit_batch", items)
    kinds = [type(answer) for answer in first]
    invalid, conflict = errors.InvalidRequestError, errors.ConflictError
    assert [Submitted, invalid, Submitted, Submitted, conflict, invalid, errors.NotFoundError] == kinds
    assert kinds == [type(answer) for answer in again]
    assert "/amount" == first[1].violations[0].field
    assert (False, True, True) == (first[0].attached, first[3].attached, again[0].attached)
    assert {first[0].action_id} == {first[3].action_id, again[0].action_id, again[3].action_id}
    action = await both.ask("wait", first[0].action_id, timeout=30.0)
    assert ("SUCCEEDED", "till", 2) == (_state(action.state), action.queue, action.priority)
    events, _, error = await both.events("watch", first[0].action_id, after=first[0].action.cursor)
    assert (None, "settled") == (error, events[-1].WhichOneof("event"))
    assert 1 == desk.marks(tmp_path, "pay")


async def test_more_than_travel_at_once_are_all_stored_in_order(both: Both) -> None:
    items = [Submission("desk.add", {"a": number, "b": 0}, delay=3600) for number in range(1100)]
    answers = await both.ask("submit_batch", items)
    assert 1100 == len({answer.action_id for answer in answers})
    (queue,) = await both.ask("queues")
    assert ("default", 0, 1100) == (queue.name, queue.ready, queue.delayed)
    last = await both.ask("get", answers[1099].action_id)
    assert '{"a":1099,"b":0}' == last.input_json
    with pytest.raises(ValueError, match="say which"):
        await both.ask("cancel_all")
    look = await both.ask("cancel_all", queue="default", validate_only=True)
    done = await both.ask("cancel_all", queue="default", states=["queued"], reason="enough")
    assert (CancelCount(matched=1100, marked=0, ended=0), 1100, 1100) == (look, done.marked, done.ended)
    assert "CANCELLED" == _state((await both.ask("get", answers[0].action_id)).state)
    assert [] == list(await both.ask("queues"))


async def test_a_paused_queue_stores_and_begins_nothing(both: Both, tmp_path: Path) -> None:
    paused = await both.ask("pause_queue", "till", reason="cashing up")
    submitted = await both.ask("submit", "desk.pay", {"amount": "1.00"}, queue="till")
    waited = await both.ask("wait", submitted.action_id, timeout=1.0)
    assert ("QUEUED", 0, True, "cashing up") == (
        _state(waited.state),
        desk.marks(tmp_path, "pay"),
        paused.paused,
        paused.paused_reason,
    )
    (queue,) = await both.ask("queues")
    assert ("till", True, 1) == (queue.name, queue.paused, queue.ready)
    resumed = await both.ask("resume_queue", "till")
    action = await both.ask("wait", submitted.action_id, timeout=30.0)
    assert (False, "SUCCEEDED") == (resumed.paused, _state(action.state))
    assert not (await both.ask("resume_queue", "till")).paused


async def _doubtful(both: Both, key: str) -> str:
    with pytest.raises(errors.AmbiguousError) as caught:
        await both.ask("call", "desk.mumble", {"text": "hello"}, key=key)
    return caught.value.action_id


async def test_what_can_be_asked_is_asked_and_a_report_tells_what_is_left(both: Both) -> None:
    action_id = await _doubtful(both, "m0")
    for look in (True, False):
        (result,) = await both.ask("reconcile", [action_id], validate_only=look)
        assert (action_id, False, "no_lookup") == (result.action_id, result.changed, result.refused_rule)
    assert 1 == len(await both.ask("reconcile", capabilities=["desk.mumble"], count_max=5))
    with pytest.raises(ValueError, match="action_ids alone"):
        await both.ask("reconcile", [action_id], count_max=1)
    looked = await both.ask("recover", validate_only=True)
    report = await both.ask("recover", families=["ambiguous"], key="once")
    assert report == await both.ask("recover", families=["ambiguous"], key="once")
    assert report == await both.ask("report", report.report_id)
    ((entry,),) = (section.entries for section in report.sections)
    assert (action_id, "AMBIGUOUS", True) == (entry.id, entry.outcome, action_id in entry.next_step)
    listed = await both.pages("reports", page_size=1)
    assert [report.report_id, looked.report_id] == [each.report_id for each in listed][:2]
    assert [True, False] == [looked.validate_only, report.validate_only]
    assert 0 == sum(len(section.entries) for each in listed for section in each.sections)
    with pytest.raises(errors.NotFoundError):
        await both.ask("report", UNKNOWN_ID)
    with pytest.raises(ValueError, match="'dead_letters'"):
        await both.ask("recover", families=["everything"])


async def test_what_was_done_is_said_once_and_is_the_answer_to_its_key(both: Both) -> None:
    action_id = await _doubtful(both, "m1")
    (effect,) = await both.pages("ambiguous", capabilities=["desk.mumble"])
    assert (action_id, "said hello", True) == (
        effect.action.action_id,
        effect.action.provider_operation,
        effect.attempt_may_act,
    )
    said = {"reason": "the bank has it", "evidence": "T-1", "output": "hello"}
    looked = await both.ask("resolve_ambiguous", action_id, "done", validate_only=True, **said)
    action = await both.ask("resolve_ambiguous", action_id, "done", expected_attempt=1, **said)
    again = await both.ask("resolve_ambiguous", action_id, "done", **said)
    assert ("AMBIGUOUS", "SUCCEEDED") == (_state(looked.state), _state(action.state))
    assert action == again
    result = await both.ask("call", "desk.mumble", {"text": "hello"}, key="m1")
    assert ("hello", True, []) == (result.output, result.attached, await both.pages("ambiguous"))
    with pytest.raises(errors.ConflictError) as caught:
        await both.ask("resolve_ambiguous", action_id, "not_done", reason="no", evidence="T-2")
    assert ("STATE_CONFLICT", "not_ambiguous") == (caught.value.reason, caught.value.metadata["rule"])


async def test_what_was_not_done_is_said_when_it_is_certain_and_may_be_tried_again(
    both: Both, running: Server, tmp_path: Path
) -> None:
    action_id = await _doubtful(both, "m2")
    said = {"reason": "the bank has nothing", "evidence": "T-1"}
    with pytest.raises(errors.ConflictError) as caught:
        await both.ask("resolve_ambiguous", action_id, "not_done", **said)
    assert "attempt_may_act" == caught.value.metadata["rule"]
    running.clock.advance(3600)
    action = await both.ask("resolve_ambiguous", action_id, "not_done", **said)
    error = error_of_action(action)
    assert isinstance(error, errors.FailedError)
    assert ("not_done", "NOT_DONE", "the bank has nothing") == (
        error.failure_code,
        error.effect,
        error.outcome and error.outcome.message,
    )
    (tmp_path / "open").touch()
    (redriven,) = await both.ask("redrive", [action_id])
    assert redriven.changed
    action = await both.ask("wait", action_id, timeout=30.0)
    assert ("SUCCEEDED", 2, "m2") == (_state(action.state), action.generation, action.idempotency_key)


async def test_a_verdict_that_does_not_fit_changes_nothing(both: Both) -> None:
    action_id = await _doubtful(both, "m3")
    said = {"reason": "r", "evidence": "e"}
    with pytest.raises(errors.InvalidRequestError):
        await both.ask("resolve_ambiguous", action_id, "done", output=7, **said)
    with pytest.raises(errors.InvalidRequestError):
        await both.ask("resolve_ambiguous", action_id, "done", output="x", reason="", evidence="e")
    with pytest.raises(errors.ConflictError):
        await both.ask("resolve_ambiguous", action_id, "done", output="x", expected_attempt=2, **said)
    with pytest.raises(errors.NotFoundError):
        await both.ask("resolve_ambiguous", UNKNOWN_ID, "done", output="x", **said)
    assert [action_id] == [effect.action.action_id for effect in await both.pages("ambiguous")]
