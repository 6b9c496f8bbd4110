"""What a caller meets of an action that has ended, or whose effect is in doubt: one class per ErrorReason, as in
`errors.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError


@dataclass(kw_only=True, eq=False)
class HandlerFailed(PlacetError):
    """`code` is UNAVAILABLE when the failure is temporary and certainly not done: the key is free again."""

    reason: ClassVar[str] = "HANDLER_FAILED"
    code: Code = Code.ABORTED
    failure_code: str
    category: str
    message: str = ""
    retry_delay_seconds: float | None = None

    def text(self) -> str:
        return f"The handler failed ({self.failure_code}): {self.message}"

    def metadata(self) -> dict[str, str]:
        return {"failure_code": self.failure_code, "category": self.category}


@dataclass(kw_only=True, eq=False)
class OutputSchemaViolation(PlacetError):
    reason: ClassVar[str] = "OUTPUT_SCHEMA_VIOLATION"
    code = Code.ABORTED
    capability: str
    path: str = ""

    def text(self) -> str:
        return (
            f"The handler of {self.capability!r} returned what its own contract forbids (at "
            f"{self.path or 'the root'})."
        )


@dataclass(kw_only=True, eq=False)
class CancelledByCaller(PlacetError):
    reason: ClassVar[str] = "CANCELLED_BY_CALLER"
    code = Code.CANCELLED

    def text(self) -> str:
        return "The action was cancelled and has not taken effect."


@dataclass(kw_only=True, eq=False)
class DeadlineExceeded(PlacetError):
    reason: ClassVar[str] = "DEADLINE_EXCEEDED"
    code = Code.DEADLINE_EXCEEDED

    def text(self) -> str:
        return "The work did not end in its time; it was stopped and has not taken effect."


@dataclass(kw_only=True, eq=False)
class Shutdown(PlacetError):
    reason: ClassVar[str] = "SHUTDOWN"
    code = Code.CANCELLED

    def text(self) -> str:
        return "The server stopped before the work took effect."


@dataclass(kw_only=True, eq=False)
class RetryBudgetExhausted(PlacetError):
    reason: ClassVar[str] = "RETRY_BUDGET"
    code = Code.ABORTED
    attempts: int

    def text(self) -> str:
        return f"Its retry budget is spent; attempts made: {self.attempts}."


@dataclass(kw_only=True, eq=False)
class QueueDelayExhausted(PlacetError):
    reason: ClassVar[str] = "QUEUE_DELAY"
    code = Code.ABORTED
    queue: str

    def text(self) -> str:
        return f"No server began it in time, so it left queue {self.queue!r}; nothing was done."


@dataclass(kw_only=True, eq=False)
class EffectAmbiguous(PlacetError):
    reason: ClassVar[str] = "EFFECT_AMBIGUOUS"
    code = Code.UNKNOWN
    cause: str

    def text(self) -> str:
        return "The effect may have happened: look at the provider before you do it again under a new key."
