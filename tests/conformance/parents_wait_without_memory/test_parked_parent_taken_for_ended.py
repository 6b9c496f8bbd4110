"""A parent whose step waits for people is parked, tells whose yes that is, and goes on after it: to every client."""

from __future__ import annotations

import json
import uuid
from typing import Any

from placet.v1 import action_pb2, outcome_pb2
from tests.conformance.program import Program


def test_it_is_parked_with_its_steps_wait_and_goes_on_as_the_same_attempt(program: Program) -> None:
    options = {"idempotency_key": str(uuid.uuid4())}
    request: dict[str, Any] = {
        "invocation": {"capability": "desk.settle", "input_json": "{}", "options": options}
    }
    answer = program.call("ExecuteStream", request)
    assert ("FAILED_PRECONDITION", "APPROVAL_REQUIRED") == (answer.code, answer.reason)
    assert outcome_pb2.OUTCOME_KIND_WAITING == answer.outcome.kind
    kinds = [event.WhichOneof("event") for event in answer.events]
    assert ["admitted", "attempt_started", "effect_started", "parked"] == kinds
    assert (1, 1) == (answer.events[-1].parked.attempt, answer.events[-1].parked.steps)
    (wait,) = answer.outcome.waits
    assert ("pay", True) == (wait.step_path, wait.action_id != answer.outcome.action_id)
    seen = program.call("GetApproval", {"approval_id": wait.approval_id}).responses[0]["approval"]
    decision = {"approval_id": wait.approval_id, "digest": seen["digest"], "verdict": "VOTE_VERDICT_APPROVE"}
    assert "OK" == program.call("DecideApproval", decision | {"decision_id": str(uuid.uuid4())}).code
    done = program.call("ExecuteStream", request)
    assert "OK" == done.code
    assert ["parked", "requeued", "resumed", "settled"] == [e.WhichOneof("event") for e in done.events][-4:]
    settled = done.events[-1].settled
    assert ({"transferred": "1"}, 1) == (json.loads(settled.output_json), settled.outcome.attempt)
    assert outcome_pb2.EFFECT_STATE_DONE == settled.outcome.effect
    found = program.call("GetAction", {"action_id": answer.outcome.action_id}).action
    assert action_pb2.ACTION_STATE_SUCCEEDED == found.state
