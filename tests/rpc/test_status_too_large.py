"""Every reason at its worst-case size stays within the trailers that default clients take whole."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from placet.v1 import error_reason_pb2
from placet_server.model import (
    budget_errors,
    child_errors,
    connector_errors,
    decision_errors,
    ending_errors,
    errors,
    gate_errors,
    identity_errors,
    policy_errors,
    run_errors,
)
from placet_server.model.errors import Code, FieldViolation, PlacetError
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind, RetryAdvice
from placet_server.rpc.status import TRAILER_BYTES_MAX, trailer_bytes, wire_status
from tests.rpc.support import ACTION_ID, Refusal, bearer, serving

REASONS = {
    name.removeprefix("ERROR_REASON_") for name, number in error_reason_pb2.ErrorReason.items() if number
}
MODULES = (
    errors,
    ending_errors,
    child_errors,
    connector_errors,
    decision_errors,
    gate_errors,
    identity_errors,
    policy_errors,
    budget_errors,
    run_errors,
)
MEMBERS = [each for module in MODULES for each in vars(module).values() if isinstance(each, type)]
CLASSES = sorted(
    {each for each in MEMBERS if issubclass(each, PlacetError)} - {PlacetError}, key=lambda each: each.reason
)
# One, two, three and four UTF-8 bytes; a sign that percent encoding triples; a lone surrogate.
LETTERS = ["a", "é", "√", "🚀", "%", "\ud800", "\n"]


def worst(kind: type[PlacetError], letter: str, *, length: int = 5000) -> PlacetError:
    """Every text as long as nothing bounds it, every violation that fits in memory, and an outcome."""
    error = kind(**{f.name: _worst_value(f, letter, length) for f in fields(kind)})  # type: ignore[arg-type]
    text = letter * length
    error.violations = tuple(FieldViolation(field=text, rule=text, description=text) for _ in range(100))
    error.outcome = Outcome(
        kind=OutcomeKind.AMBIGUOUS,
        reason="EFFECT_AMBIGUOUS",
        action_id=ACTION_ID,
        attempt=2**31 - 1,
        retry_advice=RetryAdvice.AFTER_WAIT,
        retry_delay_seconds=1e6,
        failure_code="c" * 64,
        message=text,
        effect=EffectState.UNKNOWN,
    )
    return error


def _worst_value(field: Any, letter: str, length: int) -> Any:
    if field.name == "code":
        return Code.ABORTED
    if field.name == "violations":
        return ()
    return {"str": letter * length, "int": 2**63, "float": 1e300, "float | None": 1e6}[field.type]


def test_there_is_one_class_for_each_reason() -> None:
    assert sorted(REASONS) == [each.reason for each in CLASSES]


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.reason)
def test_the_worst_case_of_every_reason_fits(kind: type[PlacetError], letter: str) -> None:
    status = wire_status(worst(kind, letter))
    assert trailer_bytes(status) <= TRAILER_BYTES_MAX


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.reason)
def test_what_is_left_is_whole(kind: type[PlacetError], letter: str) -> None:
    status = wire_status(worst(kind, letter))
    details = status_pb2.Status.FromString(dict(status.trailers)["grpc-status-details-bin"])
    infos = [d for d in details.details if d.type_url.endswith("google.rpc.ErrorInfo")]
    assert 1 == len(infos)
    assert kind.reason == error_details_pb2.ErrorInfo.FromString(infos[0].value).reason
    assert status.message == details.message
    assert status.code.value[0] == details.code


def test_sixteen_violations_of_ordinary_length_are_all_named() -> None:
    violations = tuple(
        FieldViolation(
            field=f"invocation.options.labels[{n}]", rule="string.max_len", description="too long by far"
        )
        for n in range(40)
    )
    status = wire_status(errors.MalformedRequest(violations=violations))
    details = status_pb2.Status.FromString(dict(status.trailers)["grpc-status-details-bin"])
    bad = next(d for d in details.details if d.type_url.endswith("BadRequest"))
    assert 16 == len(error_details_pb2.BadRequest.FromString(bad.value).field_violations)
    assert trailer_bytes(status) <= TRAILER_BYTES_MAX


@pytest.mark.parametrize("letter", ["a", "√"])
@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.reason)
async def test_the_worst_case_of_every_reason_reaches_a_client_whole(
    kind: type[PlacetError], letter: str
) -> None:
    async def fail(rpc: object) -> None:
        raise worst(kind, letter)

    from placet.v1 import runtime_service_pb2
    from tests.rpc.support import Setup

    async with serving(Setup(behaviour=fail)) as running:
        for _ in range(5):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await running.runtime.GetCaller(runtime_service_pb2.GetCallerRequest(), metadata=bearer())
            assert kind.reason == Refusal(caught.value).reason
