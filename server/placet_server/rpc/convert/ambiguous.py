"""Effects that may have happened, and a verdict on one, to model and back."""

from __future__ import annotations

from typing import Any

from placet.v1 import recovery_service_pb2 as pb
from placet_server.core.recovery.reconcile import NO_LOOKUP, NOT_AUTOMATIC
from placet_server.core.recovery.resolve import Finding, ResolveCommand
from placet_server.core.recovery.wish import ReconcileCommand
from placet_server.rpc.convert.action import action_message, told_to
from placet_server.rpc.convert.time import set_timestamp
from placet_server.store.ambiguous import Ambiguous

_FINDING = {pb.VERDICT_DONE: Finding.DONE, pb.VERDICT_NOT_DONE: Finding.NOT_DONE}

# What the server says of itself; the rest is what lookups say.
OWN_WORDS = (NO_LOOKUP, NOT_AUTOMATIC)


def ambiguous_message(found: Ambiguous, tenant: str) -> pb.AmbiguousEffect:
    """As a member of that tenant may see it."""
    is_own = found.action.requester.tenant == tenant
    message = pb.AmbiguousEffect(
        action=told_to(action_message(found.action, with_payloads=False), tenant),
        attempt_may_act=found.attempt_may_act,
        asked=found.asked,
        finding=found.finding if is_own or found.finding in OWN_WORDS else "",
    )
    if found.since_time_us is not None:
        set_timestamp(message.since_time, found.since_time_us)
    if found.next_time_us is not None:
        set_timestamp(message.next_time, found.next_time_us)
    return message


def reconcile_of(request: pb.ReconcileRequest) -> ReconcileCommand:
    """The message has passed validation."""
    given: dict[str, Any] = {"count_max": request.count_max} if request.count_max else {}
    return ReconcileCommand(
        action_ids=tuple(request.action_ids),
        capabilities=tuple(request.capabilities),
        validate_only=request.validate_only,
        **given,
    )


def resolve_of(request: pb.ResolveAmbiguousRequest) -> ResolveCommand:
    """The message has passed validation."""
    return ResolveCommand(
        action_id=request.action_id,
        finding=_FINDING[request.verdict],
        output_json=request.output_json,
        reason=request.reason,
        evidence=request.evidence,
        expected_attempt=request.expected_attempt,
        validate_only=request.validate_only,
    )
