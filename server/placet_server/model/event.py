"""What happened to an action, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """Stored names; on the wire with the prefix `placet.action.`.

    The last ones, LANE, travel in a lane of their own.
    """

    ADMITTED = "admitted"
    ATTEMPT_STARTED = "attempt_started"
    PARKED = "parked"
    RESUMED = "resumed"
    REQUEUED = "requeued"
    RUN_OPENED = "run_opened"
    TURN_REQUESTED = "turn_requested"
    TURN_ANSWERED = "turn_answered"
    TURN_FAILED = "turn_failed"
    COMPACTED = "compacted"
    EFFECT_STARTED = "effect_started"
    EFFECT_CHECKPOINTED = "effect_checkpointed"
    CANCEL_REQUESTED = "cancel_requested"
    AMBIGUOUS = "ambiguous"
    SETTLED = "settled"
    REDRIVEN = "redriven"
    RECONCILE_GIVEN_UP = "reconcile_given_up"
    WAITING = "waiting"
    APPROVAL_DECIDED = "approval_decided"
    APPROVAL_ENDED = "approval_ended"
    CHUNK = "chunk"
    PROGRESS = "progress"
    DELTA = "delta"
    TOOL_STARTED = "tool_started"
    TOOL_FINISHED = "tool_finished"


LANE = frozenset(
    {
        EventType.CHUNK,
        EventType.PROGRESS,
        EventType.DELTA,
        EventType.TOOL_STARTED,
        EventType.TOOL_FINISHED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`sequence` is gap-free from 1 for events of the life, 0 for lane items, whose `number` counts within
    `attempt`.

    `body` by type: admitted {capability, version, durability}, submitted also {queue, ready_time_us}; redriven
    {generation, attempts, requester, reason}; attempt_started and resumed {attempt}; parked {attempt, steps,
    lane_number}; requeued {attempt, ready_time_us, cause}; effect_started {attempt}; effect_checkpointed
    {provider_operation}; cancel_requested {requester, reason}; ambiguous and settled {kind, reason, cause, effect,
    attempt, retry_advice, retry_delay_seconds, failure_code, message}, settled also output_json when SUCCEEDED;
    settled and requeued, of what was in doubt, also resolution {verdict, reason, evidence, requester, request};
    reconcile_given_up {asked, finding}; waiting {approval_id, kind, title, expire_time_us, predecessor_id};
    approval_decided {approval_id, decision_id, voter, verdict, reason, completes, taken_back}; approval_ended
    {approval_id, state}; progress {message, fraction}; chunk {text | json | base64}; delta
    {turn, request, text | reasoning}; tool_started {turn, call, tool, action_id, waiting}; tool_finished {turn, call,
    tool, action_id, kind, reason, effect, attempt, retry_advice, retry_delay_seconds, failure_code}."""

    action_id: str
    type: EventType
    cursor: str
    create_time_us: int
    sequence: int = 0
    attempt: int = 0
    number: int = 0
    replayed: bool = False
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleCheckpoint:
    """Nothing new: resume after `cursor`."""

    action_id: str
    cursor: str
