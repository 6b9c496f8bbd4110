"""However a call ends, a program reads it from fields: kind, reason, effect, advice; no handler's own fault leaks."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from placet.v1 import action_pb2, outcome_pb2
from tests.conformance import desk
from tests.conformance.program import Program

pytestmark = pytest.mark.parametrize("rpc", ["Execute", "ExecuteStream"])


def invoke(capability: str, value: object = None, *, key: bool = False) -> dict[str, Any]:
    options = {"idempotency_key": str(uuid.uuid4())} if key else {}
    given = {} if value is None else value
    return {"invocation": {"capability": capability, "input_json": json.dumps(given), "options": options}}


def ending(outcome: outcome_pb2.Outcome) -> tuple[str, str, str]:
    return (
        outcome_pb2.OutcomeKind.Name(outcome.kind).removeprefix("OUTCOME_KIND_"),
        outcome_pb2.EffectState.Name(outcome.effect).removeprefix("EFFECT_STATE_"),
        outcome_pb2.RetryAdvice.Name(outcome.retry_advice).removeprefix("RETRY_ADVICE_"),
    )


def test_success_is_ok_with_the_output_and_the_same_in_the_trailers(program: Program, rpc: str) -> None:
    answer = program.call(rpc, invoke("desk.pay", {"amount": "19.90 €"}, key=True))
    assert ("OK", 0) == (answer.code, answer.details)
    if rpc == "Execute":
        action = answer.action
        assert action_pb2.ACTION_STATE_SUCCEEDED == action.state
        action_id, output, outcome = action.action_id, action.output_json, action.outcome
    else:
        last = answer.events[-1]
        action_id, output, outcome = last.action_id, last.settled.output_json, last.settled.outcome
    assert '{"paid":"19.90 €"}' == output
    assert ("SUCCEEDED", "DONE", "NEVER") == ending(outcome)
    assert {"placet-action-id": action_id, "placet-outcome": "SUCCEEDED"} == answer.trailers


def test_a_failure_carries_the_authors_code_and_what_to_do_next(program: Program, rpc: str) -> None:
    answer = program.call(rpc, invoke("desk.decline", key=True))
    assert ("ABORTED", "HANDLER_FAILED") == (answer.code, answer.reason)
    assert ("FAILED", "NOT_DONE", "NEW_KEY") == ending(answer.outcome)
    assert ("card_declined", "the bank said no") == (answer.outcome.failure_code, answer.outcome.message)
    assert "card_declined" == answer.variables["failure_code"]
    assert answer.outcome.action_id == answer.trailers["placet-action-id"]
    assert "-1" == answer.trailers["grpc-retry-pushback-ms"]


def test_a_temporary_failure_may_be_resent_under_its_key_after_the_delay(program: Program, rpc: str) -> None:
    answer = program.call(rpc, invoke("desk.stumble", key=True))
    assert ("UNAVAILABLE", "HANDLER_FAILED") == (answer.code, answer.reason)
    assert ("FAILED", "NOT_DONE", "SAME_KEY") == ending(answer.outcome)
    assert (2.5,) == answer.retry_seconds
    assert "grpc-retry-pushback-ms" not in answer.trailers


def test_an_undeclared_exception_is_ambiguous_and_its_text_stays_at_the_server(
    program: Program, rpc: str
) -> None:
    answer = program.call(rpc, invoke("desk.crash", key=True))
    assert ("UNKNOWN", "EFFECT_AMBIGUOUS") == (answer.code, answer.reason)
    assert ("AMBIGUOUS", "UNKNOWN", "AFTER_WAIT") == ending(answer.outcome)
    assert desk.SECRET not in str(answer)
    assert "RuntimeError" not in str(answer)


def test_an_output_against_its_own_schema_is_the_handlers_failure(program: Program, rpc: str) -> None:
    answer = program.call(rpc, invoke("desk.lie"))
    assert ("ABORTED", "OUTPUT_SCHEMA_VIOLATION") == (answer.code, answer.reason)
    assert outcome_pb2.OUTCOME_KIND_FAILED == answer.outcome.kind
