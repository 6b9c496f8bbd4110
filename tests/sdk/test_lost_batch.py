"""Batches that are lost, cut or refused in part: each item has its own answer, and none is sent again for nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from placet import Submission, errors
from placet.result import Submitted
from placet.v1 import action_pb2, operations_service_pb2, recovery_service_pb2, runtime_service_pb2
from tests.sdk.conftest import Both
from tests.sdk.support import (
    ACTION_ID,
    Script,
    answer_with,
    break_off,
    details,
    hang,
    refuse,
    serving,
    succeeded,
)

Connect = Callable[[str], Both]
Code = grpc.StatusCode


def _submission(name: str, **options: Any) -> Submission:
    return Submission("reports.export", {"name": name}, **options)


def _stored(request: Any, **refused: status_pb2.Status) -> runtime_service_pb2.SubmitBatchResponse:
    """Each is stored under an id made of its name, except those that are refused."""
    results = []
    for item in request.items:
        name = item.invocation.input_json.split('"')[3]
        if name in refused:
            results.append(runtime_service_pb2.SubmitBatchResult(error=refused[name]))
            continue
        action = runtime_service_pb2.SubmittedAction(
            action_id=f"id-{name}", state=action_pb2.ACTION_STATE_QUEUED, cursor="c1"
        )
        results.append(runtime_service_pb2.SubmitBatchResult(submitted=action))
    return runtime_service_pb2.SubmitBatchResponse(results=results)


def _storing(**refused: status_pb2.Status) -> Any:
    async def answer(request: Any, _: Any) -> Any:
        return _stored(request, **refused)

    return answer


def _status(code: Code, reason: str, **fields: Any) -> status_pb2.Status:
    status = status_pb2.Status.FromString(details(reason, code=code, **fields))
    status.message = reason.lower()
    return status


def _names(request: Any) -> list[str]:
    return [item.invocation.input_json.split('"')[3] for item in request.items]


def _keys(request: Any) -> list[str]:
    return [item.invocation.options.idempotency_key for item in request.items]


async def test_each_has_its_own_answer_in_its_own_place(connect: Connect) -> None:
    refused = _status(Code.INVALID_ARGUMENT, "INPUT_SCHEMA_VIOLATION")
    script = Script(SubmitBatch=[_storing(b=refused)])
    async with serving(script) as target:
        answers = await connect(target).ask("submit_batch", [_submission(name) for name in "abc"])
    first, second, third = answers
    assert isinstance(second, errors.InvalidRequestError)
    assert ("INVALID_ARGUMENT", "INPUT_SCHEMA_VIOLATION") == (second.code, second.reason)
    assert ("id-a", "id-c", False, "c1") == (
        first.action_id,
        third.action_id,
        first.attached,
        first.action.cursor,
    )
    assert 1 == len(script.named("SubmitBatch"))


async def test_only_what_may_be_sent_again_is_and_under_its_key(connect: Connect) -> None:
    shed = _status(Code.UNAVAILABLE, "OVERLOADED")
    conflict = _status(Code.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT")
    script = Script(SubmitBatch=[_storing(b=shed, c=conflict), _storing()])
    async with serving(script) as target:
        answers = await connect(target).ask("submit_batch", [_submission(name) for name in "abc"])
    first, again = script.named("SubmitBatch")
    assert (["a", "b", "c"], ["b"]) == (_names(first), _names(again))
    assert [_keys(first)[1]] == _keys(again)
    assert [Submitted, Submitted, errors.ConflictError] == [type(answer) for answer in answers]


async def test_a_lost_reply_sends_the_same_batch_again(connect: Connect) -> None:
    script = Script(
        SubmitBatch=[break_off(Code.UNAVAILABLE), refuse(Code.UNAVAILABLE, "DRAINING"), _storing()]
    )
    async with serving(script) as target:
        answers = await connect(target).ask("submit_batch", [_submission(name) for name in "ab"])
    assert ["id-a", "id-b"] == [answer.action_id for answer in answers]
    sent = script.named("SubmitBatch")
    assert sent[0] == sent[1] == sent[2]
    assert "" not in _keys(sent[0])


async def test_a_reply_that_stays_lost_names_the_key_of_each(connect: Connect) -> None:
    script = Script(SubmitBatch=[break_off(Code.PERMISSION_DENIED)])
    async with serving(script) as target:
        answers = await connect(target).ask(
            "submit_batch", [_submission("a", key="k1"), _submission("b", key="")]
        )
    assert [errors.TransportError] * 2 == [type(answer) for answer in answers]
    assert "its key is 'k1'" in answers[0].__notes__[0]
    assert not hasattr(answers[1], "__notes__")


async def test_a_batch_that_is_refused_whole_refuses_each(connect: Connect) -> None:
    script = Script(SubmitBatch=[refuse(Code.PERMISSION_DENIED, "SCOPE_MISSING")])
    async with serving(script) as target:
        answers = await connect(target).ask("submit_batch", [_submission(name) for name in "ab"])
    assert [errors.PermissionDeniedError] * 2 == [type(answer) for answer in answers]


async def test_a_capability_that_takes_no_key_is_sent_without(connect: Connect) -> None:
    metadata = {"rule": "idempotency_key_unsupported"}
    refused = _status(Code.INVALID_ARGUMENT, "CONTRACT_VIOLATION", metadata=metadata)
    script = Script(SubmitBatch=[_storing(a=refused, b=refused), _storing()])
    async with serving(script) as target:
        both = connect(target)
        answers = await both.ask("submit_batch", [_submission("a"), _submission("b", key="mine")])
        await both.ask("submit_batch", [_submission("c")])
    assert [Submitted, errors.InvalidRequestError] == [type(answer) for answer in answers]
    _, again, later = script.named("SubmitBatch")
    assert (["a"], [""], [""]) == (_names(again), _keys(again), _keys(later))


async def test_many_travel_in_parts_that_every_server_takes(connect: Connect) -> None:
    script = Script(SubmitBatch=[_storing()])
    large = "x" * 2**20
    async with serving(script) as target:
        both = connect(target)
        answers = await both.ask("submit_batch", [_submission(str(number)) for number in range(1001)])
        assert [f"id-{number}" for number in range(1001)] == [answer.action_id for answer in answers]
        assert [500, 500, 1] == [len(request.items) for request in script.named("SubmitBatch")]
        await both.ask("submit_batch", [_submission(large) for _ in range(4)])
        assert [] == await both.ask("submit_batch", [])
    assert [2, 2] == [len(request.items) for request in script.named("SubmitBatch")[3:]]


async def test_what_was_never_sent_is_not_said_to_be_lost(connect: Connect) -> None:
    script = Script(SubmitBatch=[hang])
    async with serving(script) as target:
        answers = await connect(target).ask(
            "submit_batch", [_submission(str(number)) for number in range(501)], timeout=0.5
        )
    assert isinstance(answers[499], errors.TransportError)
    assert isinstance(answers[500], errors.UnavailableError)
    assert "was not sent" in str(answers[500])


@pytest.mark.parametrize(
    "faulty",
    [
        lambda: Submission("a.b", float("nan")),
        lambda: _submission("a", ready_time=datetime(2030, 1, 31)),
        lambda: _submission("a", delay=1, ready_time=datetime(2030, 1, 31)),
    ],
    ids=["input", "zone", "two starts"],
)
async def test_what_cannot_be_sent_keeps_all_from_being_sent(connect: Connect, faulty: Any) -> None:
    script = Script(SubmitBatch=[_storing()])
    async with serving(script) as target:
        with pytest.raises(ValueError, match=r"JSON compliant|time zone|exclude each other"):
            await connect(target).ask("submit_batch", [_submission("a"), faulty()])
    assert [] == script.requests


async def test_pauses_are_sent_for_whom_they_are_meant(connect: Connect) -> None:
    queue = operations_service_pb2.Queue(name="nightly", paused=True)
    script = Script(
        PauseQueue=[answer_with(operations_service_pb2.PauseQueueResponse(queue=queue))],
        ResumeQueue=[break_off(Code.UNAVAILABLE), answer_with(operations_service_pb2.ResumeQueueResponse())],
    )
    async with serving(script) as target:
        both = connect(target)
        assert queue == await both.ask("pause_queue", "nightly", reason="repairs", tenant="-")
        await both.ask("resume_queue", "nightly")
    (paused,), resumed = script.named("PauseQueue"), script.named("ResumeQueue")
    assert ("nightly", "repairs", "-") == (paused.queue, paused.reason, paused.tenant)
    assert [("nightly", "")] * 2 == [(request.queue, request.tenant) for request in resumed]


async def test_a_verdict_is_sent_again_as_it_was_said(connect: Connect) -> None:
    answered = answer_with(recovery_service_pb2.ResolveAmbiguousResponse(action=succeeded()))
    script = Script(ResolveAmbiguous=[break_off(Code.UNAVAILABLE), answered])
    async with serving(script) as target:
        both = connect(target)
        action = await both.ask(
            "resolve_ambiguous", ACTION_ID, "done", reason="it is there", evidence="ch_1", output={"a": 1}
        )
        await both.ask(
            "resolve_ambiguous",
            ACTION_ID,
            "not_done",
            reason="it is not",
            evidence="T-1",
            expected_attempt=2,
            validate_only=True,
        )
        await both.ask("resolve_ambiguous", ACTION_ID, "done", reason="r", evidence="e")
    assert ACTION_ID == action.action_id
    lost, again, looked, empty = script.named("ResolveAmbiguous")
    assert lost == again
    assert (recovery_service_pb2.VERDICT_DONE, '{"a":1}', "it is there", "ch_1") == (
        again.verdict,
        again.output_json,
        again.reason,
        again.evidence,
    )
    assert (recovery_service_pb2.VERDICT_NOT_DONE, "", 2, True) == (
        looked.verdict,
        looked.output_json,
        looked.expected_attempt,
        looked.validate_only,
    )
    assert "null" == empty.output_json


@pytest.mark.parametrize("said", [{"verdict": "maybe"}, {"verdict": "not_done", "output": {}}])
async def test_a_verdict_that_means_nothing_is_never_sent(connect: Connect, said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"verdict is|has no output"):
        await connect("127.0.0.1:1").ask("resolve_ambiguous", ACTION_ID, reason="r", evidence="e", **said)


async def test_ambiguous_effects_are_listed_for_whom_it_was_asked(connect: Connect) -> None:
    effect = recovery_service_pb2.AmbiguousEffect(action=succeeded(), attempt_may_act=True)
    pages = [
        recovery_service_pb2.ListAmbiguousResponse(effects=[effect], next_page_token="more"),
        recovery_service_pb2.ListAmbiguousResponse(effects=[effect]),
    ]
    script = Script(ListAmbiguous=[answer_with(page) for page in pages])
    async with serving(script) as target:
        found = await connect(target).pages("ambiguous", capabilities=["payments.charge"], tenant="-")
    assert [effect, effect] == found
    first, second = script.named("ListAmbiguous")
    assert ("-", ["payments.charge"], "", "more") == (
        first.tenant,
        list(first.capabilities),
        first.page_token,
        second.page_token,
    )
