"""How an attempt may end: facts. `judgement.py` says what each makes of the row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placet_server.model.outcome import EffectState, FailureCategory

HANDLER_FAILED = "HANDLER_FAILED"
CONNECTOR_UNAVAILABLE = "CONNECTOR_UNAVAILABLE"
UNDECLARED_ERROR = "undeclared_error"


class StopCause(StrEnum):
    """Why an attempt was stopped, or never came back."""

    CANCELLED_BY_CALLER = "CANCELLED_BY_CALLER"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    """The caller's deadline, under on_caller_gone CANCEL: the work is not wanted any longer."""
    TIMEOUT = "TIMEOUT"
    """The attempt's own limit: the work is still wanted."""
    SHUTDOWN = "SHUTDOWN"
    INSTANCE_LOST = "INSTANCE_LOST"
    NEVER_STARTED = "NEVER_STARTED"
    """The reply to the admission was lost, or the connector not reached, so no handler was entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The handler returned what its contract allows."""

    output_json: str
    output_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedBadly:
    """The handler returned what its contract forbids, at `path`."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The handler declared a failure, or by its `reason` somebody on the way to it did. `effect` UNKNOWN if it did not
    say.
    """

    code: str
    message: str
    category: FailureCategory
    effect: EffectState
    retry_delay_seconds: float | None = None
    reason: str = HANDLER_FAILED

    @property
    def is_blameless(self) -> bool:
        """The work was not begun, so it must not be what spends its attempts."""
        return self.reason == CONNECTOR_UNAVAILABLE and self.effect is EffectState.NOT_DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The handler raised what it did not declare."""


UNDECLARED = Failed(
    code=UNDECLARED_ERROR,
    message="The handler raised an error that it does not declare; the server's log has it.",
    category=FailureCategory.PERMANENT,
    effect=EffectState.NOT_DONE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The attempt was stopped from outside. `entered`: the handler may have begun."""

    cause: StopCause
    entered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """The attempt waits for these of its steps, with nobody running it. `lane_number`: how much it has said."""

    awaited: tuple[str, ...]
    lane_number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """Of what is COMPOSED: the attempt is to go on later, with nobody running it until then. `message`: why.
    `lane_number`: how much it has said.
    """

    delay_seconds: float
    message: str = ""
    lane_number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhausted:
    """Of what is COMPOSED: a budget would be passed by going on. `reason`: a name of ErrorReason. `cause`: which bound,
    by `bound_of`; or what failed the last time, if it is RETRY_BUDGET.
    """

    reason: str
    cause: str
    message: str = ""


Ending = Returned | ReturnedBadly | Failed | Raised | Stopped | Parked | Postponed | Exhausted


class Ended(BaseException):
    """How a program of ours ends, if not by a value or a Failure. No `except Exception` of it takes it for an error."""

    def __init__(self, ending: Postponed | Exhausted) -> None:
        super().__init__(ending)
        self.ending = ending


UNWANTED = frozenset({StopCause.CANCELLED_BY_CALLER, StopCause.DEADLINE_EXCEEDED})
# A shutdown or a lost reply is no fault of the action, so it is never what ends it, and the claim after it gives the
# attempt back: the statements that claim know these two by their names.
BLAMELESS = frozenset({StopCause.SHUTDOWN, StopCause.NEVER_STARTED})
