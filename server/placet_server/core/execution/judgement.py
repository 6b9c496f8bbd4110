"""How an attempt ended, and what that means. Pure: facts in, verdict out.

The rule behind every branch: once the provider may have been touched, the outcome is unknown until somebody
who knows says otherwise. An ending without an answer (a crash, a timeout, a cancel, an error that nobody
declared) may be repeated where the effect class says that repeating is safe, and otherwise ends AMBIGUOUS.
It never ends CANCELLED, EXHAUSTED or FAILED. An earlier attempt that ended unknown counts until an answer
about the effect itself arrives: a later attempt that never reached the provider, failed only for the moment,
or was turned away at the door, says nothing about the earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from placet_server.core.publication.line import closing_time_us
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import TEMPORARY_CATEGORIES, EffectState, FailureCategory

RETRY_DELAY_SECONDS = 0.1
RETRY_DELAY_SECONDS_MAX = 5.0
UNDECLARED_ERROR = "undeclared_error"
EFFECT_KEY_EXPIRED = "EFFECT_KEY_EXPIRED"
QUEUE_DELAY = "QUEUE_DELAY"
CALLER_GONE = "CALLER_GONE"


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
    """The reply to the admission was lost, so no handler was entered."""


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
    """The handler declared a failure. `effect` UNKNOWN if it did not say."""

    code: str
    message: str
    category: FailureCategory
    effect: EffectState
    retry_delay_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The handler raised what it did not declare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The attempt was stopped from outside. `entered`: the handler may have begun."""

    cause: StopCause
    entered: bool = True


Ending = Returned | ReturnedBadly | Failed | Raised | Stopped

UNWANTED = frozenset({StopCause.CANCELLED_BY_CALLER, StopCause.DEADLINE_EXCEEDED})
# What a provider, or the SDK before it, says of a request without looking at earlier ones.
SILENT = TEMPORARY_CATEGORIES | {FailureCategory.INVALID, FailureCategory.FORBIDDEN}
# A shutdown or a lost reply is no fault of the action and costs no attempt.
BLAMELESS = frozenset({StopCause.SHUTDOWN, StopCause.NEVER_STARTED})


def judge(action: Action, ending: Ending, *, now_us: int, stop: StopCause | None = None) -> Verdict:
    """`action` is the running row as its lease holder, or its rescuer, knows it.

    `stop`: why the handler was asked to stop, if it was, whatever it then did.
    """
    unwanted = _unwanted(action, stop)
    match ending:
        case Returned():
            return Verdict(
                state=ActionState.SUCCEEDED,
                effect=_unless_read(action, EffectState.DONE),
                output_json=ending.output_json,
                output_digest=ending.output_digest,
            )
        case ReturnedBadly():
            return Verdict(
                state=ActionState.FAILED,
                effect=_unless_read(action, EffectState.DONE),
                reason="OUTPUT_SCHEMA_VIOLATION",
                cause=ending.path,
                message=ending.message,
            )
        case Failed():
            return _failed(action, ending, now_us, unwanted)
        case Raised():
            return _raised(action, now_us, unwanted)
        case Stopped():
            return _stopped(action, ending, now_us)
        case _:
            assert_never(ending)


def close_verdict(action: Action, now_us: int) -> Verdict | None:
    """What a ready action comes to that is not to begin any more: it is not wanted, repeating it is not safe any
    longer, or nobody began it in time. None: it waits on.
    """
    if action.cancel_requested_time_us is not None:
        if action.effect_unknown:
            return _ambiguous(StopCause.CANCELLED_BY_CALLER)
        return _closed(action, ActionState.CANCELLED, StopCause.CANCELLED_BY_CALLER)
    closing = closing_time_us(action)
    if closing is None or now_us < closing:
        return None
    if action.effect_unknown:
        return _ambiguous(EFFECT_KEY_EXPIRED)
    effect = _unless_read(action, EffectState.NOT_DONE)
    if action.is_submitted:
        return Verdict(state=ActionState.EXHAUSTED, effect=effect, reason=QUEUE_DELAY, cause=QUEUE_DELAY)
    reason = StopCause.DEADLINE_EXCEEDED.value
    return Verdict(state=ActionState.CANCELLED, effect=effect, reason=reason, cause=CALLER_GONE)


def _failed(action: Action, failed: Failed, now_us: int, unwanted: StopCause | None) -> Verdict:
    temporary = failed.category in TEMPORARY_CATEGORIES
    if failed.effect is EffectState.DONE:
        return _failure(action, failed, effect=EffectState.DONE, key_released=False)
    untouched = not _may_have_touched(action)
    if untouched or failed.effect is EffectState.NOT_DONE:
        says_nothing_of_earlier = action.effect_unknown and (untouched or failed.category in SILENT)
        if not says_nothing_of_earlier:
            if temporary and unwanted is not None:
                return _closed(action, ActionState.CANCELLED, unwanted)
            return _failure(action, failed, effect=EffectState.NOT_DONE, key_released=temporary)
    if unwanted is not None:
        return _ambiguous("HANDLER_FAILED", failed.message)
    return _unanswered(
        action, "HANDLER_FAILED", now_us, message=failed.message, delay_seconds=failed.retry_delay_seconds
    )


def _raised(action: Action, now_us: int, unwanted: StopCause | None) -> Verdict:
    if _is_certainly_not_done(action):
        undeclared = Failed(
            code=UNDECLARED_ERROR,
            message="The handler raised an error that it does not declare; the server's log has it.",
            category=FailureCategory.PERMANENT,
            effect=EffectState.NOT_DONE,
        )
        return _failure(action, undeclared, effect=EffectState.NOT_DONE, key_released=False)
    cause = UNDECLARED_ERROR.upper()
    return _unanswered(action, cause, now_us) if unwanted is None else _ambiguous(cause)


def _stopped(action: Action, stopped: Stopped, now_us: int) -> Verdict:
    cause = _unwanted(action, stopped.cause) or stopped.cause
    wanted = cause not in UNWANTED
    if not stopped.entered:
        action = action.changed(effect_begun=False)
    if _is_certainly_not_done(action):
        if wanted and cause is not StopCause.TIMEOUT and _can_be_resent(action):
            return _again_or_exhausted(action, cause)
        return _closed(action, ActionState.CANCELLED, cause)
    if not wanted:
        return _ambiguous(cause)
    blameless = not stopped.entered and cause in BLAMELESS
    return _unanswered(action, cause.value, now_us, blameless=blameless)


def _unwanted(action: Action, stop: StopCause | None) -> StopCause | None:
    """Why nobody wants the action any more, if that is so."""
    if action.cancel_requested_time_us is not None and stop is not StopCause.DEADLINE_EXCEEDED:
        return StopCause.CANCELLED_BY_CALLER
    return stop if stop in UNWANTED else None


def _again_or_exhausted(action: Action, cause: StopCause) -> Verdict:
    """Nothing has happened: ready again, at no risk."""
    blameless = cause in BLAMELESS
    if not blameless and action.attempt >= action.attempts_max:
        return _closed(action, ActionState.EXHAUSTED, cause)
    return Verdict(
        state=ActionState.QUEUED,
        effect=_unless_read(action, EffectState.NOT_DONE),
        effect_unknown=False,
        cause=cause.value,
        ready_delay_seconds=0.0 if blameless else _backoff_seconds(action.attempt),
    )


def _unanswered(
    action: Action,
    cause: str,
    now_us: int,
    *,
    message: str = "",
    delay_seconds: float | None = None,
    blameless: bool = False,
) -> Verdict:
    """The provider may have been touched and nobody knows more: again where that is safe, else AMBIGUOUS."""
    repeatable = (
        action.effect_class == "IDEMPOTENT"
        and action.effect_key_expire_time_us is not None
        and now_us < action.effect_key_expire_time_us
        and (blameless or action.attempt < action.attempts_max)
        and action.cancel_requested_time_us is None
    )
    if not repeatable:
        return _ambiguous(cause, message)
    delay = 0.0 if blameless else _backoff_seconds(action.attempt)
    return Verdict(
        state=ActionState.QUEUED,
        effect=EffectState.UNKNOWN,
        effect_unknown=True,
        cause=cause,
        ready_delay_seconds=delay if delay_seconds is None else max(delay, delay_seconds),
    )


def _ambiguous(cause: str, message: str = "") -> Verdict:
    return Verdict(
        state=ActionState.AMBIGUOUS,
        effect=EffectState.UNKNOWN,
        effect_unknown=True,
        reason="EFFECT_AMBIGUOUS",
        cause=str(cause),
        message=message,
    )


def _closed(action: Action, state: ActionState, cause: StopCause) -> Verdict:
    reasons = {StopCause.CANCELLED_BY_CALLER: "CANCELLED_BY_CALLER", StopCause.SHUTDOWN: "SHUTDOWN"}
    deadlines = (StopCause.DEADLINE_EXCEEDED, StopCause.TIMEOUT)
    reason = "DEADLINE_EXCEEDED" if cause in deadlines else reasons.get(cause, "SHUTDOWN")
    return Verdict(
        state=state,
        effect=_unless_read(action, EffectState.NOT_DONE),
        reason="RETRY_BUDGET" if state is ActionState.EXHAUSTED else reason,
        cause=cause.value,
    )


def _failure(action: Action, failed: Failed, *, effect: EffectState, key_released: bool) -> Verdict:
    return Verdict(
        state=ActionState.FAILED,
        effect=_unless_read(action, effect),
        reason="HANDLER_FAILED",
        message=failed.message,
        failure_code=failed.code,
        failure_category=failed.category,
        retry_delay_seconds=failed.retry_delay_seconds,
        key_released=key_released,
    )


def _may_have_touched(action: Action) -> bool:
    """This attempt."""
    return action.effect_class != "READ" and action.effect_begun


def _is_certainly_not_done(action: Action) -> bool:
    """Over all attempts."""
    return not _may_have_touched(action) and not action.effect_unknown


def _can_be_resent(action: Action) -> bool:
    """Without a key nobody can ask for this action again, so nobody would ever run it."""
    return bool(action.idempotency_key)


def _unless_read(action: Action, effect: EffectState) -> EffectState | None:
    return None if action.effect_class == "READ" else effect


def _backoff_seconds(attempt: int) -> float:
    return float(min(RETRY_DELAY_SECONDS_MAX, RETRY_DELAY_SECONDS * 2 ** (attempt - 1)))
