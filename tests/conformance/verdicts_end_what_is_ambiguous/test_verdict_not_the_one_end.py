"""An effect that may have happened is listed, and a verdict is its one end, whichever client tells it."""

from __future__ import annotations

import uuid
from typing import Any

from placet.v1 import action_pb2, outcome_pb2
from tests.conformance.program import Program

SUCCEEDED = "ACTION_STATE_SUCCEEDED"


def invoke() -> dict[str, Any]:
    options = {"idempotency_key": str(uuid.uuid4())}
    return {"invocation": {"capability": "desk.crash", "input_json": "{}", "options": options}}


def test_a_verdict_ends_what_is_ambiguous_for_every_client(program: Program) -> None:
    request = invoke()
    answer = program.call("Execute", request)
    (outcome,) = answer.outcomes
    assert ("EFFECT_AMBIGUOUS", outcome_pb2.OUTCOME_KIND_AMBIGUOUS) == (answer.reason, outcome.kind)
    verdict = {
        "action_id": outcome.action_id,
        "verdict": "VERDICT_DONE",
        "output_json": "null",
        "reason": "asked the bank",
        "evidence": "ticket 7",
    }
    # What it may still do cannot be denied yet.
    denied = verdict | {"verdict": "VERDICT_NOT_DONE", "output_json": ""}
    conflict = program.call("ResolveAmbiguous", denied)
    assert ("FAILED_PRECONDITION", "STATE_CONFLICT") == (conflict.code, conflict.reason)
    for _ in range(2):
        resolved = program.call("ResolveAmbiguous", verdict)
        assert ("OK", SUCCEEDED) == (resolved.code, action_pb2.ActionState.Name(resolved.action.state))
    again = program.call("Execute", request)
    assert ("OK", outcome.action_id, "null") == (
        again.code,
        again.action.action_id,
        again.action.output_json,
    )
    other = program.call("ResolveAmbiguous", verdict | {"reason": "another"})
    assert ("FAILED_PRECONDITION", "STATE_CONFLICT") == (other.code, other.reason)


def test_what_is_ambiguous_is_listed_for_every_client(program: Program) -> None:
    (outcome,) = program.call("Execute", invoke()).outcomes
    page = program.call("ListAmbiguous", {"capabilities": ["desk.crash"], "page_size": 1000})
    effects = {effect["action"]["actionId"]: effect for effect in page.responses[0]["effects"]}
    assert effects[outcome.action_id]["attemptMayAct"]
    assert "ACTION_STATE_AMBIGUOUS" == effects[outcome.action_id]["action"]["state"]
