"""The contract gate: does the request ask for what the contract allows, and how long may the work take?"""

from __future__ import annotations

from typing import NamedTuple

from placet_server.core.execution.ending import StopCause
from placet_server.model.action import Invocation, OnCallerGone
from placet_server.model.capability import Capability
from placet_server.model.contract import KeyRequirement
from placet_server.model.ending_errors import DeadlineExceeded
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.gate_errors import ContractViolation, IdempotencyKeyRequired

REPLY_MARGIN_SHARE = 0.1
REPLY_MARGIN_SECONDS_MIN = 0.010
REPLY_MARGIN_SECONDS_MAX = 0.250


class Clocks(NamedTuple):
    """Seconds: for the attempt, with what it means when they are over, and for the caller's wait (None:
    no end).
    """

    attempt_seconds: float
    attempt_cause: StopCause
    wait_seconds: float | None


def check_contract(
    capability: Capability,
    invocation: Invocation,
    time_left_seconds: float | None,
    *,
    needs_key: bool = True,
) -> Clocks:
    """Raises MalformedRequest, ContractViolation, IdempotencyKeyRequired, DeadlineExceeded."""
    _check_text(invocation)
    requirement = capability.contract.idempotency.requirement
    key = invocation.idempotency_key
    if requirement is KeyRequirement.REQUIRED and not key and needs_key:
        raise IdempotencyKeyRequired(capability=capability.name, version=capability.version)
    if requirement is KeyRequirement.UNSUPPORTED and key:
        raise ContractViolation(
            capability=capability.name,
            rule="idempotency_key_unsupported",
            detail="it takes no idempotency_key.",
        )
    return clocks_for(capability, invocation, time_left_seconds)


def _check_text(invocation: Invocation) -> None:
    """The store holds no NUL in text."""
    if "\x00" in invocation.idempotency_key:
        raise _malformed("invocation.idempotency_key")
    labels = invocation.labels
    if labels and any("\x00" in key or "\x00" in value for key, value in labels.items()):
        raise _malformed("invocation.labels")


def _malformed(field: str) -> MalformedRequest:
    return MalformedRequest(
        violations=(FieldViolation(field=field, rule="text", description="has a NUL character"),)
    )


def clocks_for(capability: Capability, invocation: Invocation, time_left_seconds: float | None) -> Clocks:
    """The attempt ends a reply margin before the caller's deadline, so that the typed answer still
    arrives.
    """
    limits = capability.contract.limits
    attempt = invocation.timeout_seconds or limits.timeout_default_seconds
    if attempt > limits.timeout_max_seconds:
        attempt = limits.timeout_max_seconds
    if time_left_seconds is None:
        return Clocks(attempt, StopCause.TIMEOUT, None)
    margin = _margin_seconds(time_left_seconds)
    if time_left_seconds <= margin:
        raise DeadlineExceeded()
    wait = time_left_seconds - margin / 4
    until_caller_leaves = time_left_seconds - margin
    if invocation.on_caller_gone is OnCallerGone.CANCEL and until_caller_leaves < attempt:
        return Clocks(until_caller_leaves, StopCause.DEADLINE_EXCEEDED, wait)
    return Clocks(attempt, StopCause.TIMEOUT, wait)


def wait_seconds_for(time_left_seconds: float | None) -> float | None:
    """How long a caller can be kept waiting, so that the answer still arrives. Raises DeadlineExceeded."""
    if time_left_seconds is None:
        return None
    margin = _margin_seconds(time_left_seconds)
    if time_left_seconds <= margin:
        raise DeadlineExceeded()
    return time_left_seconds - margin / 4


def _margin_seconds(time_left_seconds: float) -> float:
    share = time_left_seconds * REPLY_MARGIN_SHARE
    return min(max(share, REPLY_MARGIN_SECONDS_MIN), REPLY_MARGIN_SECONDS_MAX)
