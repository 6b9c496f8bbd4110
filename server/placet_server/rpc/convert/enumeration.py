"""Every enum of the contract beside its model twin, paired by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from placet.v1 import action_pb2, error_reason_pb2, outcome_pb2
from placet_server.model.action import OnCallerGone, OnDuplicate, OnWait
from placet_server.model.caller import CallerKind
from placet_server.model.durability import DurabilityClass
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, OutcomeKind, RetryAdvice
from placet_server.model.session import OnBusy
from placet_server.model.wait import WaitKind

_E = TypeVar("_E", bound=StrEnum)


def numbers(wire: Any, prefix: str, model: type[_E]) -> dict[_E, Any]:
    """Model member → number of the message enum. Raises ValueError for a member without a twin."""
    return {member: wire.Value(prefix + member.name) for member in model}


def members(wire: Any, prefix: str, model: type[_E]) -> dict[int, _E]:
    """Number → model member, for every number but 0."""
    return {number: member for member, number in numbers(wire, prefix, model).items()}


OUTCOME_KIND = numbers(outcome_pb2.OutcomeKind, "OUTCOME_KIND_", OutcomeKind)
RETRY_ADVICE = numbers(outcome_pb2.RetryAdvice, "RETRY_ADVICE_", RetryAdvice)
EFFECT_STATE = numbers(outcome_pb2.EffectState, "EFFECT_STATE_", EffectState)
ACTION_STATE = numbers(action_pb2.ActionState, "ACTION_STATE_", ActionState)
ACTION_STATE_MEMBER = members(action_pb2.ActionState, "ACTION_STATE_", ActionState)
# Numbered alike on both sides.
DURABILITY: dict[DurabilityClass, Any] = {member: member.value for member in DurabilityClass}
DURABILITY_MEMBER = {member.value: member for member in DurabilityClass}
CALLER_KIND = numbers(action_pb2.CallerKind, "CALLER_KIND_", CallerKind)
ON_CALLER_GONE = members(action_pb2.OnCallerGone, "ON_CALLER_GONE_", OnCallerGone)
ON_WAIT = members(action_pb2.OnWait, "ON_WAIT_", OnWait)
WAIT_KIND = numbers(outcome_pb2.WaitKind, "WAIT_KIND_", WaitKind)
ON_DUPLICATE = members(action_pb2.OnDuplicate, "ON_DUPLICATE_", OnDuplicate)
ON_BUSY = members(action_pb2.OnBusy, "ON_BUSY_", OnBusy)
ERROR_REASON = {
    name.removeprefix("ERROR_REASON_"): number
    for name, number in error_reason_pb2.ErrorReason.items()
    if number
}
