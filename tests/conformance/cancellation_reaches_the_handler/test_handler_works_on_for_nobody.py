"""A client that cancels its call cancels the work, where that is what it asked for."""

from __future__ import annotations

import json
import uuid

import pytest

from placet.v1 import action_pb2
from tests.conformance import desk
from tests.conformance.program import Program

SECONDS = 20.0


@pytest.mark.parametrize("rpc", ["Execute", "ExecuteStream"])
def test_a_cancelled_call_cancels_its_handler(program: Program, rpc: str) -> None:
    name = str(uuid.uuid4())
    invocation = {
        "capability": "desk.wait",
        "input_json": json.dumps({"name": name}),
        "options": {"idempotency_key": name},
    }
    call = program.start(rpc, {"invocation": invocation})
    assert desk.begun[name].wait(SECONDS)
    call.cancel()
    assert "CANCELLED" == call.answer().code
    assert desk.cancelled[name].wait(SECONDS)
    key = {"capability": "desk.wait", "idempotency_key": name}
    action_id = program.call("GetAction", {"key": key}).action.action_id
    settled = program.call("WaitAction", {"action_id": action_id}).action
    assert action_pb2.ACTION_STATE_CANCELLED == settled.state


def test_cancelling_the_action_ends_the_call_of_somebody_else(program: Program) -> None:
    name = str(uuid.uuid4())
    invocation = {
        "capability": "desk.wait",
        "input_json": json.dumps({"name": name}),
        "options": {"idempotency_key": name},
    }
    call = program.start("Execute", {"invocation": invocation})
    assert desk.begun[name].wait(SECONDS)
    key = {"capability": "desk.wait", "idempotency_key": name}
    action_id = program.call("GetAction", {"key": key}).action.action_id
    assert "OK" == program.call("CancelAction", {"action_id": action_id, "reason": "enough"}).code
    answer = call.answer()
    assert ("CANCELLED", "CANCELLED_BY_CALLER") == (answer.code, answer.reason)
    assert action_id == answer.outcome.action_id
    assert desk.cancelled[name].wait(SECONDS)
