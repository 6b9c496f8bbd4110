"""OK of Submit says stored, nothing of the end; the end, its reason and a new beginning reach every client alike."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import placet.testing
from placet.v1 import action_pb2, error_reason_pb2, outcome_pb2
from tests.conformance import desk
from tests.conformance.conftest import Dial
from tests.conformance.hosted import hosted
from tests.conformance.program import Program

QUEUED, EXHAUSTED = "ACTION_STATE_QUEUED", "ACTION_STATE_EXHAUSTED"


@pytest.fixture(scope="module")
def idle_server() -> Iterator[placet.testing.Server]:
    """Runs nothing from queues."""
    with hosted(placet.testing.server(desk.app, queue_slots=0)) as running:
        yield running


@pytest.fixture
def idle(dial: Dial, idle_server: placet.testing.Server) -> Program:
    return dial(idle_server.target, idle_server.token)


def invoke(capability: str, **value: Any) -> dict[str, Any]:
    """With a key of its own, so that the same message is the same request."""
    options = {"idempotency_key": str(uuid.uuid4())}
    return {"invocation": {"capability": capability, "input_json": json.dumps(value), "options": options}}


def ended(program: Program, action_id: str) -> action_pb2.Action:
    return program.call("WaitAction", {"action_id": action_id}).action


def told(answer_outcome: outcome_pb2.Outcome) -> tuple[str, str, str]:
    return (
        outcome_pb2.OutcomeKind.Name(answer_outcome.kind).removeprefix("OUTCOME_KIND_"),
        outcome_pb2.EffectState.Name(answer_outcome.effect).removeprefix("EFFECT_STATE_"),
        outcome_pb2.RetryAdvice.Name(answer_outcome.retry_advice).removeprefix("RETRY_ADVICE_"),
    )


def test_a_submission_is_ok_and_pending(idle: Program) -> None:
    queue = f"q{uuid.uuid4().hex}"
    request = invoke("desk.pay", amount="1") | {"queue": queue, "priority": 0, "delay": "600s"}
    answer = idle.call("Submit", request)
    action = answer.action
    assert ("OK", 0, QUEUED) == (answer.code, answer.details, action_pb2.ActionState.Name(action.state))
    assert (queue, 0, 0, 1) == (action.queue, action.priority, action.attempt, action.generation)
    assert {"placet-action-id": action.action_id, "placet-outcome": "PENDING"} == answer.trailers
    listed = idle.call("ListQueues").responses[0]["queues"]
    assert [{"name": queue, "delayed": "1"}] == [each for each in listed if each["name"] == queue]
    again = idle.call("Submit", request)
    assert (True, action) == (again.responses[0]["attached"], again.action)


def test_a_batch_answers_for_each_item_alone(idle: Program) -> None:
    pay = invoke("desk.pay", amount="1") | {"delay": "600s"}
    wrong = [invoke("desk.pay", amount=1), invoke("desk.none"), pay | {"queue": "Q"}]
    answer = idle.call("SubmitBatch", {"items": [pay, *wrong, pay]})
    first, *refused, last = answer.responses[0]["results"]
    assert ("OK", 0, QUEUED) == (answer.code, answer.details, first["submitted"]["state"])
    assert first["submitted"] | {"attached": True} == last["submitted"]
    assert [3, 5, 3] == [each["error"]["code"] for each in refused]
    assert [idle.call("Submit", each).message for each in wrong] == [
        each["error"]["message"] for each in refused
    ]
    again = idle.call("Submit", pay)
    assert (True, first["submitted"]["actionId"]) == (
        again.responses[0]["attached"],
        again.action.action_id,
    )


def test_a_paused_queue_begins_nothing_until_it_is_resumed(program: Program) -> None:
    queue = f"q{uuid.uuid4().hex}"
    paused = program.call("PauseQueue", {"queue": queue, "reason": "the bank is down"}).responses[0]["queue"]
    assert (queue, True, "the bank is down") == (paused["name"], paused["paused"], paused["pausedReason"])
    action_id = program.call("Submit", invoke("desk.pay", amount="1") | {"queue": queue}).action.action_id
    waiting = program.call("WaitAction", {"action_id": action_id, "timeout": "0.5s"}).action
    assert (QUEUED, 0) == (action_pb2.ActionState.Name(waiting.state), waiting.attempt)
    listed = program.call("ListQueues").responses[0]["queues"]
    (found,) = (each for each in listed if each["name"] == queue)
    assert ("1", paused["pauseTime"]) == (found["ready"], found["pauseTime"])
    resumed = program.call("ResumeQueue", {"queue": queue})
    assert ("OK", None) == (resumed.code, resumed.responses[0]["queue"].get("paused"))
    assert '{"paid":"1"}' == ended(program, action_id).output_json


def test_what_was_run_since_is_told_by_a_resend(program: Program) -> None:
    request = invoke("desk.pay", amount="19.90 €")
    action_id = program.call("Submit", request).action.action_id
    assert '{"paid":"19.90 €"}' == ended(program, action_id).output_json
    again = program.call("Submit", request)
    assert {"placet-action-id": action_id, "placet-outcome": "SUCCEEDED"} == again.trailers


def test_what_no_server_begins_in_time_is_exhausted_and_says_in_which_queue(idle: Program) -> None:
    request = invoke("desk.hurried")
    action_id = idle.call("Submit", request | {"queue": "stuck"}).action.action_id
    assert EXHAUSTED == action_pb2.ActionState.Name(ended(idle, action_id).state)
    for rpc in ("Execute", "ExecuteStream"):
        answer = idle.call(rpc, request)
        assert ("ABORTED", "QUEUE_DELAY", {"queue": "stuck"}) == (
            answer.code,
            answer.reason,
            answer.variables,
        )
        assert ("EXHAUSTED", "NOT_DONE", "NEW_KEY") == told(answer.outcome)
        assert error_reason_pb2.ERROR_REASON_QUEUE_DELAY == answer.outcome.reason
        assert "-1" == answer.trailers["grpc-retry-pushback-ms"]


def test_a_spent_budget_tells_the_last_failure(program: Program) -> None:
    request = invoke("desk.stumble_once")
    action_id = program.call("Submit", request).action.action_id
    assert EXHAUSTED == action_pb2.ActionState.Name(ended(program, action_id).state)
    answer = program.call("Execute", request)
    assert ("ABORTED", "RETRY_BUDGET") == (answer.code, answer.reason)
    assert ("EXHAUSTED", "NOT_DONE", "NEW_KEY") == told(answer.outcome)
    assert ("bank_busy", "later") == (answer.outcome.failure_code, answer.outcome.message)


def test_a_dead_letter_is_listed_redriven_and_watched_through_both_its_ends(program: Program) -> None:
    action_id = program.call("Submit", invoke("desk.decline")).action.action_id
    ended(program, action_id)
    letters = program.call("ListDeadLetters", {"filter": {"capabilities": ["desk.decline"]}, "page_size": 1})
    assert [action_id] == [each["actionId"] for each in letters.responses[0]["actions"]]
    nobody = str(uuid.uuid4())
    redrive = {"selection": {"action_ids": [nobody, action_id]}, "reason": "the bank said sorry"}
    answer = program.call("Redrive", redrive)
    assert (
        "OK",
        [
            {"actionId": nobody, "refusedRule": "not_found"},
            {"actionId": action_id, "state": QUEUED, "changed": True},
        ],
    ) == (answer.code, answer.responses[0]["results"])
    ended(program, action_id)
    events = program.call("WatchAction", {"action_id": action_id}).events
    kinds = [event.WhichOneof("event") for event in events]
    assert ("admitted", 2, "settled") == (kinds[0], kinds.count("settled"), kinds[-1])
    (redriven,) = (event.redriven for event in events if event.WhichOneof("event") == "redriven")
    assert (2, "developer", "the bank said sorry") == (
        redriven.generation,
        redriven.requester,
        redriven.reason,
    )
