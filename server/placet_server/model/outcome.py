"""How an invocation ended, or why it has not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placet_server.model.wait import Wait


class OutcomeKind(StrEnum):
    """One word per ending. PENDING, WAITING and AMBIGUOUS are not terminal."""

    SUCCEEDED = "SUCCEEDED"
    WAITING = "WAITING"
    REFUSED = "REFUSED"
    DENIED = "DENIED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXHAUSTED = "EXHAUSTED"
    AMBIGUOUS = "AMBIGUOUS"
    PENDING = "PENDING"


class RetryAdvice(StrEnum):
    """What the caller may do next."""

    NEVER = "NEVER"
    SAME_KEY = "SAME_KEY"
    NEW_KEY = "NEW_KEY"
    AFTER_WAIT = "AFTER_WAIT"


class EffectState(StrEnum):
    """Done, not done, or not known."""

    NOT_DONE = "NOT_DONE"
    DONE = "DONE"
    UNKNOWN = "UNKNOWN"


class FailureCategory(StrEnum):
    """The handler's own word for why it failed."""

    INVALID = "INVALID"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    FORBIDDEN = "FORBIDDEN"
    RATE_LIMITED = "RATE_LIMITED"
    TEMPORARY = "TEMPORARY"
    PERMANENT = "PERMANENT"


TEMPORARY_CATEGORIES = frozenset({FailureCategory.TEMPORARY, FailureCategory.RATE_LIMITED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`reason` is an ErrorReason name without prefix, None for SUCCEEDED; `effect` is None for effect
    class READ. `waits`: what it waits for, or what it has called does, soonest expiry first.
    """

    kind: OutcomeKind
    reason: str | None = None
    action_id: str = ""
    attempt: int = 0
    retry_advice: RetryAdvice = RetryAdvice.NEVER
    retry_delay_seconds: float | None = None
    failure_code: str = ""
    message: str = ""
    effect: EffectState | None = None
    waits: tuple[Wait, ...] = ()
