"""Which ended actions are meant, and what became of them, to model and back."""

from __future__ import annotations

from typing import Any

from placet.v1 import recovery_service_pb2 as pb
from placet_server.core.recovery.redrive import RedriveCommand, Selected
from placet_server.model.query import DeadLetterFilter
from placet_server.rpc.convert.enumeration import ACTION_STATE


def dead_letter_filter_of(message: pb.DeadLetterFilter) -> DeadLetterFilter:
    return DeadLetterFilter(
        capabilities=tuple(message.capabilities), queue=message.queue, reason=message.reason
    )


def redrive_of(request: pb.RedriveRequest) -> RedriveCommand:
    """The message has passed validation."""
    selection = request.selection
    # What is not said is left to the command's own defaults.
    given: dict[str, Any] = {"count_max": selection.count_max} if selection.count_max else {}
    return RedriveCommand(
        action_ids=tuple(selection.action_ids),
        matching=dead_letter_filter_of(selection.filter),
        attempts=request.attempts,
        reason=request.reason,
        validate_only=request.validate_only,
        request=request.idempotency_key,
        **given,
    )


def result_message(selected: Selected) -> pb.SelectionResult:
    message = pb.SelectionResult(
        action_id=selected.action_id, changed=selected.changed, refused_rule=selected.refused_rule
    )
    if selected.state is not None:
        message.state = ACTION_STATE[selected.state]
    return message
