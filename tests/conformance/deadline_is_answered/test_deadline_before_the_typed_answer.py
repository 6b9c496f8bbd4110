"""The caller's deadline does not eat the answer: the server stops a little earlier and says what became of the work."""

from __future__ import annotations

import json
import uuid

import pytest

from placet.v1 import outcome_pb2
from tests.conformance.program import Answer, Program

# Long enough for the whole reply margin. On a machine that is slower than that the transport's own answer comes first.
SECONDS = 3.0
TRIES = 3


def wait_for_nothing(program: Program, rpc: str, gone: str) -> Answer:
    name = str(uuid.uuid4())
    invocation = {
        "capability": "desk.wait",
        "input_json": json.dumps({"name": name}),
        "options": {"idempotency_key": name, "on_caller_gone": gone},
    }
    return program.call(rpc, {"invocation": invocation}, seconds=SECONDS)


@pytest.mark.parametrize("rpc", ["Execute", "ExecuteStream"])
@pytest.mark.parametrize(
    ("gone", "reason", "kind"),
    [
        ("ON_CALLER_GONE_CANCEL", "DEADLINE_EXCEEDED", outcome_pb2.OUTCOME_KIND_CANCELLED),
        ("ON_CALLER_GONE_DETACH", "WAIT_EXPIRED", outcome_pb2.OUTCOME_KIND_PENDING),
    ],
    ids=["cancel", "detach"],
)
def test_the_answer_at_the_deadline_says_what_became_of_the_work(
    program: Program, rpc: str, gone: str, reason: str, kind: int
) -> None:
    answer = wait_for_nothing(program, rpc, gone)
    for _ in range(TRIES - 1):
        if not answer.infos:
            answer = wait_for_nothing(program, rpc, gone)
    assert ("DEADLINE_EXCEEDED", reason) == (answer.code, answer.reason)
    assert kind == answer.outcome.kind
    action_id = answer.outcome.action_id
    assert action_id == answer.trailers["placet-action-id"] == answer.headers["placet-action-id"]
    if kind == outcome_pb2.OUTCOME_KIND_PENDING:
        assert "OK" == program.call("CancelAction", {"action_id": action_id}).code
