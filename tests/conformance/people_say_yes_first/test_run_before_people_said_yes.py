"""What people have to say yes to waits, is told so in fields, and runs after that, or not; to every client alike."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from placet.v1 import action_pb2, error_reason_pb2, outcome_pb2
from tests.conformance.program import Program

WAITING, SUCCEEDED = action_pb2.ACTION_STATE_WAITING, action_pb2.ACTION_STATE_SUCCEEDED


def invoke(on_wait: str = "ON_WAIT_UNSPECIFIED") -> dict[str, Any]:
    """With a key of its own, so that the same message is the same request."""
    options = {"idempotency_key": str(uuid.uuid4()), "on_wait": on_wait}
    invocation = {
        "capability": "desk.transfer",
        "input_json": json.dumps({"amount": "1"}),
        "options": options,
    }
    return {"invocation": invocation}


def decide(program: Program, approval_id: str, verdict: str) -> dict[str, Any]:
    seen = program.call("GetApproval", {"approval_id": approval_id}).responses[0]["approval"]
    assert ('{"amount":"1"}', True) == (seen["inputJson"], seen["eligibility"]["eligible"])
    request = {
        "approval_id": approval_id,
        "digest": seen["digest"],
        "verdict": f"VOTE_VERDICT_{verdict}",
        "decision_id": str(uuid.uuid4()),
        "reason": "as seen",
    }
    answer = program.call("DecideApproval", request)
    assert "OK" == answer.code
    again = program.call("DecideApproval", request)
    assert ("OK", 1) == (again.code, len(again.responses[0]["approval"]["decisions"]))
    decided: dict[str, Any] = answer.responses[0]["approval"]
    return decided


@pytest.mark.parametrize("rpc", ["Execute", "ExecuteStream"])
def test_it_waits_and_runs_once_somebody_said_yes(program: Program, rpc: str) -> None:
    request = invoke()
    answer = program.call(rpc, request)
    assert ("FAILED_PRECONDITION", "APPROVAL_REQUIRED") == (answer.code, answer.reason)
    assert outcome_pb2.OUTCOME_KIND_WAITING == answer.outcome.kind
    assert outcome_pb2.RETRY_ADVICE_AFTER_WAIT == answer.outcome.retry_advice
    assert "WAITING" == answer.trailers["placet-outcome"]
    assert "grpc-retry-pushback-ms" not in answer.trailers
    (wait,) = answer.outcome.waits
    assert (wait.approval_id, wait.action_id) == (answer.variables["approval_id"], answer.outcome.action_id)
    if rpc == "ExecuteStream":
        assert ["admitted", "waiting"] == [event.WhichOneof("event") for event in answer.events]
    assert "APPROVAL_STATE_GRANTED" == decide(program, wait.approval_id, "APPROVE")["state"]
    done = program.call("Execute", request)
    assert ("OK", SUCCEEDED, wait.approval_id) == (done.code, done.action.state, done.action.approval_id)


def test_one_no_ends_it(program: Program) -> None:
    request = invoke("ON_WAIT_RETURN")
    answer = program.call("Execute", request)
    assert ("OK", WAITING, "WAITING") == (answer.code, answer.action.state, answer.trailers["placet-outcome"])
    assert "APPROVAL_STATE_DENIED" == decide(program, answer.action.approval_id, "DENY")["state"]
    denied = program.call("ResumeAction", {"action_id": answer.action.action_id})
    assert ("PERMISSION_DENIED", "APPROVAL_DENIED") == (denied.code, denied.reason)
    assert error_reason_pb2.ERROR_REASON_APPROVAL_DENIED == denied.outcome.reason
    assert outcome_pb2.OUTCOME_KIND_DENIED == denied.outcome.kind
    assert ("as seen", outcome_pb2.EFFECT_STATE_NOT_DONE) == (denied.outcome.message, denied.outcome.effect)


def test_a_yes_that_is_taken_back_lets_nothing_run(program: Program) -> None:
    submitted = program.call("Submit", invoke() | {"delay": "600s"}).action
    assert WAITING == submitted.state
    decided = decide(program, submitted.approval_id, "APPROVE")
    request = {"approval_id": submitted.approval_id, "decision_id": decided["decisions"][0]["decisionId"]}
    revoked = program.call("RevokeDecision", request)
    assert ("OK", "APPROVAL_STATE_REVOKED") == (revoked.code, revoked.responses[0]["approval"]["state"])
    ended = program.call("WaitAction", {"action_id": submitted.action_id}).action
    assert action_pb2.ACTION_STATE_DENIED == ended.state
    listed = program.call(
        "ListApprovals", {"filter": {"action_id": submitted.action_id, "states": ["APPROVAL_STATE_REVOKED"]}}
    )
    assert [submitted.approval_id] == [each["approvalId"] for each in listed.responses[0]["approvals"]]
