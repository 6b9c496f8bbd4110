"""What a caller can meet: one class per kind of outcome, so that `except` says what to do.

PlacetError
├── RefusedError             a gate said no: nothing ran, nothing was stored
│   ├── InvalidRequestError  change the request; `violations` say where
│   ├── UnauthenticatedError, NotFoundError
│   ├── PermissionDeniedError
│   │   ├── PolicyRefused    policy does not allow it
│   │   └── NotEligible      not for you to decide; `problem` says why
│   ├── ConflictError        the key is bound to another input, or known and duplicates were refused; or what was
│   │   │                    to be changed does not stand as was expected
│   │   └── DecisionConflict the decision is known otherwise; it was not counted
│   └── CursorExpiredError, UnsupportedError
├── UnavailableError         nothing is recorded: the same request with its key may be sent again at any time
├── WaitingError             stored, and nobody runs it before people have said yes or answered; `waits` says what
│   └── ApprovalRequired, InputRequired
├── DeniedError              people did not say yes, and nothing was done
│   └── ApprovalDenied, ApprovalRevoked, ApprovalExpired
├── FailedError              the handler says that the work did not succeed
├── ActionCancelled          stopped, and known not to have taken effect
├── ExhaustedError           a budget is spent, and it is known not to have taken effect
├── AmbiguousError           the effect may have happened
├── PendingError             only the wait ended; the action goes on
├── ServerFaultError         a bug of the server; metadata has its incident_id
└── TransportError           not from Placet: the outcome is not known
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placet.v1 import outcome_pb2

SAME_KEY = "SAME_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule: `field` is a field path or a JSON Pointer into the input."""

    field: str
    rule: str
    description: str


class PlacetError(Exception):
    """Base of all.

    `code` is the gRPC status code's name, `reason` an ErrorReason without prefix ("" for TransportError). `outcome` is
    set when the server sent one; `action_id` is "" when no action is known.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        outcome: outcome_pb2.Outcome | None = None,
        action_id: str = "",
        violations: tuple[Violation, ...] = (),
        retry_delay_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{reason or code}: {message}")
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.outcome = outcome
        self.action_id = action_id
        self.violations = violations
        self.retry_delay_seconds = retry_delay_seconds

    @property
    def effect(self) -> str:
        """ "NOT_DONE", "DONE" or "UNKNOWN"; "" where the capability has none, or no action exists."""
        if self.outcome is None or not self.outcome.effect:
            return ""
        return outcome_pb2.EffectState.Name(self.outcome.effect).removeprefix("EFFECT_STATE_")

    @property
    def retry_advice(self) -> str:
        """ "NEVER", "SAME_KEY", "NEW_KEY" or "AFTER_WAIT"."""
        if self.outcome is not None and self.outcome.retry_advice:
            return outcome_pb2.RetryAdvice.Name(self.outcome.retry_advice).removeprefix("RETRY_ADVICE_")
        return SAME_KEY if self.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED") else "NEVER"

    @property
    def failure_code(self) -> str:
        """The handler's own code, for example "card_declined"."""
        if self.outcome is not None and self.outcome.failure_code:
            return self.outcome.failure_code
        return self.metadata.get("failure_code", "")


class RefusedError(PlacetError):
    pass


class InvalidRequestError(RefusedError):
    pass


class UnauthenticatedError(RefusedError):
    pass


class PermissionDeniedError(RefusedError):
    pass


class PolicyRefused(PermissionDeniedError):
    @property
    def policies(self) -> tuple[str, ...]:
        """Those that forbid it; none: no policy allows it."""
        return tuple(filter(None, self.metadata.get("policies", "").split(",")))


class NotEligible(PermissionDeniedError):
    @property
    def problem(self) -> str:
        """Why, for example "requester" or "not_selected"."""
        return self.metadata.get("problem", "")


class NotFoundError(RefusedError):
    pass


class ConflictError(RefusedError):
    pass


class DecisionConflict(ConflictError):
    pass


class CursorExpiredError(RefusedError):
    @property
    def oldest_cursor(self) -> str:
        """Where the store's history begins; "" is the beginning of the action."""
        return self.metadata.get("oldest_cursor", "")


class UnsupportedError(RefusedError):
    pass


class UnavailableError(PlacetError):
    pass


class WaitingError(PlacetError):
    @property
    def waits(self) -> tuple[outcome_pb2.Wait, ...]:
        """What it waits for, soonest expiry first."""
        return () if self.outcome is None else tuple(self.outcome.waits)

    @property
    def approval_id(self) -> str:
        """What has to be decided, or answered."""
        return self.metadata.get("approval_id", "") or next((w.approval_id for w in self.waits), "")


class ApprovalRequired(WaitingError):
    pass


class InputRequired(WaitingError):
    pass


class DeniedError(PlacetError):
    pass


class ApprovalDenied(DeniedError):
    pass


class ApprovalRevoked(DeniedError):
    pass


class ApprovalExpired(DeniedError):
    pass


class FailedError(PlacetError):
    pass


class ActionCancelled(PlacetError):
    pass


class ExhaustedError(PlacetError):
    pass


class AmbiguousError(PlacetError):
    pass


class PendingError(PlacetError):
    pass


class ServerFaultError(PlacetError):
    pass


class TransportError(PlacetError):
    @property
    def effect(self) -> str:
        """Always "UNKNOWN": whoever answered was not Placet."""
        return "UNKNOWN"

    @property
    def retry_advice(self) -> str:
        """Always "SAME_KEY": with its key the same request is safe."""
        return SAME_KEY


class TargetError(ValueError):
    """No server is named, or the token file cannot be read. The text says what to set."""
