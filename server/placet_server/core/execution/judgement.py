"""How an attempt ended, and what that means. Pure: facts in, verdict out.

The rule behind every branch: once the provider may have been touched, the outcome is unknown until somebody
who knows says otherwise. An ending without an answer (a crash, a timeout, a cancel, an error that nobody
declared) may be repeated where the effect class says that repeating is safe, and otherwise ends AMBIGUOUS.
It never ends CANCELLED, EXHAUSTED or FAILED. An earlier attempt that ended unknown counts until an answer
about the effect itself arrives: a later attempt that never reached the provider, failed only for the moment,
or was turned away at the door, says nothing about the earlier one.

What is COMPOSED does nothing but by the actions that it calls, each of which is judged by itself: an attempt of it may
always be repeated, and nothing of it is ever unknown. What its end says of its effect is theirs, and filled in where
it becomes a row (`publication/settle.py`).

Who schedules a retry owns its budget. What was executed has a caller, to whom every failure is told. What was
submitted has none, so the server tries again what failed for the moment, took too long, or raised, where it is certain
that nothing was done; once the budget is spent it is EXHAUSTED, and its last failure stays told."""

from __future__ import annotations

from typing import assert_never

from placet_server.core.execution.ending import (
    BLAMELESS,
    UNDECLARED,
    UNDECLARED_ERROR,
    UNWANTED,
    Ending,
    Exhausted,
    Failed,
    Parked,
    Postponed,
    Raised,
    Returned,
    ReturnedBadly,
    StopCause,
    Stopped,
)
from placet_server.core.publication.line import budget_end_us, closing_time_us
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action
from placet_server.model.contract import Backoff
from placet_server.model.lifecycle import CHILD, POSTPONED, ActionState
from placet_server.model.outcome import TEMPORARY_CATEGORIES, EffectState, FailureCategory

# What a caller repeats is ready sooner than what waits in a queue.
EXECUTED_BACKOFF = Backoff(initial_delay_seconds=0.1, delay_seconds_max=5.0)
SUBMITTED_BACKOFF = Backoff()
EFFECT_KEY_EXPIRED = "EFFECT_KEY_EXPIRED"
QUEUE_DELAY = "QUEUE_DELAY"
RETRY_BUDGET = "RETRY_BUDGET"
CALLER_GONE = "CALLER_GONE"
CAPABILITY_WITHDRAWN = "CAPABILITY_WITHDRAWN"
RECONCILED = "RECONCILED"
NOT_DONE = "not_done"
POSTPONED_SECONDS_MAX = 86_400.0


# Does nothing itself, so a handler that raised it may be entered again, and no attempt of it is ever in doubt.
REPEATABLE = frozenset({"READ", "COMPOSED"})
# What a provider, or the SDK before it, says of a request without looking at earlier ones.
SILENT = TEMPORARY_CATEGORIES | {FailureCategory.INVALID, FailureCategory.FORBIDDEN}


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
        case Parked():
            if unwanted is not None:
                return _cancelled(action, unwanted)
            return Verdict(
                state=ActionState.WAITING,
                cause=CHILD,
                awaited=ending.awaited,
                lane_number=ending.lane_number,
            )
        case Postponed():
            return _postponed(action, ending, unwanted)
        case Exhausted():
            return _exhausted(action, ending.reason, ending.cause)._replace(message=ending.message)
        case _:
            assert_never(ending)


def close_verdict(action: Action, now_us: int) -> Verdict | None:
    """What a ready action comes to that is not to begin any more: it is not wanted, repeating it is not safe any
    longer, nobody began it in time, or its budget is over. None: it waits on.
    """
    if action.cancel_requested_time_us is not None:
        if action.effect_unknown:
            return _ambiguous(StopCause.CANCELLED_BY_CALLER)
        return _cancelled(action, StopCause.CANCELLED_BY_CALLER)
    closing = closing_time_us(action)
    if closing is None or now_us < closing:
        return None
    if action.effect_unknown:
        return _ambiguous(RETRY_BUDGET if _may_be_repeated(action, now_us) else EFFECT_KEY_EXPIRED)
    if not action.is_submitted:
        reason = StopCause.DEADLINE_EXCEEDED.value
        effect = _unless_read(action, EffectState.NOT_DONE)
        return Verdict(state=ActionState.CANCELLED, effect=effect, reason=reason, cause=CALLER_GONE)
    reason = QUEUE_DELAY if action.budget_time_us is None else RETRY_BUDGET
    return _exhausted(action, reason, reason)._replace(
        message=action.message, failure_code=action.failure_code, failure_category=action.failure_category
    )


def withdrawn_verdict(action: Action) -> Verdict:
    """What a ready action comes to whose capability is not in service any more."""
    if action.effect_unknown:
        return _ambiguous(CAPABILITY_WITHDRAWN)
    effect = _unless_read(action, EffectState.NOT_DONE)
    return Verdict(
        state=ActionState.REFUSED, effect=effect, reason="CAPABILITY_NOT_FOUND", cause=CAPABILITY_WITHDRAWN
    )


def judge_undone(action: Action, code: str, message: str, *, retryable: bool, now_us: int) -> Verdict:
    """What an ambiguous action comes to once it is proved that nothing was done, over all its attempts, and nothing
    will be.

    Not retryable, it keeps its key, as whoever reads of it must not take it for never tried.
    """
    if action.cancel_requested_time_us is not None:
        return _cancelled(action, StopCause.CANCELLED_BY_CALLER)._replace(message=message)
    category = FailureCategory.TEMPORARY if retryable else FailureCategory.PERMANENT
    failed = Failed(code=code, message=message, category=category, effect=EffectState.NOT_DONE)
    if retryable and action.is_submitted:
        return _again_or_exhausted(action, RECONCILED, now_us, failed=failed)
    return _failure(action, failed, effect=EffectState.NOT_DONE, key_released=retryable)


def _failed(action: Action, failed: Failed, now_us: int, unwanted: StopCause | None) -> Verdict:
    temporary = failed.category in TEMPORARY_CATEGORIES
    if failed.effect is EffectState.DONE:
        return _failure(action, failed, effect=EffectState.DONE, key_released=False)
    untouched = not _may_have_touched(action)
    if untouched or failed.effect is EffectState.NOT_DONE:
        says_nothing_of_earlier = action.effect_unknown and (untouched or failed.category in SILENT)
        if not says_nothing_of_earlier:
            if temporary and unwanted is not None:
                return _cancelled(action, unwanted)
            if temporary and _retries_are_ours(action):
                cause = StopCause.NEVER_STARTED.value if failed.is_blameless else failed.reason
                return _again_or_exhausted(action, cause, now_us, failed=failed)
            released = temporary and not action.is_submitted
            return _failure(action, failed, effect=EffectState.NOT_DONE, key_released=released)
    if unwanted is not None:
        return _ambiguous(failed.reason, failed.message)
    return _unanswered(
        action, failed.reason, now_us, message=failed.message, delay_seconds=failed.retry_delay_seconds
    )


def _postponed(action: Action, postponed: Postponed, unwanted: StopCause | None) -> Verdict:
    """It costs no attempt: what bounds how often is the run's own budget."""
    if unwanted is not None:
        return _cancelled(action, unwanted)
    return Verdict(
        state=ActionState.QUEUED,
        effect=EffectState.NOT_DONE,
        cause=POSTPONED,
        message=postponed.message,
        ready_delay_seconds=round(max(0.0, min(POSTPONED_SECONDS_MAX, postponed.delay_seconds)), 6),
        lane_number=postponed.lane_number,
    )


def _raised(action: Action, now_us: int, unwanted: StopCause | None) -> Verdict:
    cause = UNDECLARED_ERROR.upper()
    if not _is_certainly_not_done(action):
        return _unanswered(action, cause, now_us) if unwanted is None else _ambiguous(cause)
    if action.effect_class not in REPEATABLE or not _retries_are_ours(action):
        return _failure(action, UNDECLARED, effect=EffectState.NOT_DONE, key_released=False)
    if unwanted is not None:
        return _cancelled(action, unwanted)
    return _again_or_exhausted(action, cause, now_us, failed=UNDECLARED)


def _stopped(action: Action, stopped: Stopped, now_us: int) -> Verdict:
    cause = _unwanted(action, stopped.cause) or stopped.cause
    wanted = cause not in UNWANTED
    if not stopped.entered:
        action = action.changed(effect_begun=False)
    blameless = cause in BLAMELESS
    if _is_certainly_not_done(action):
        is_worth_it = cause is not StopCause.TIMEOUT or _retries_are_ours(action)
        if wanted and is_worth_it and _can_run_again(action):
            return _again_or_exhausted(action, cause.value, now_us, blameless=blameless)
        return _cancelled(action, cause)
    if not wanted:
        return _ambiguous(cause)
    return _unanswered(action, cause.value, now_us, blameless=blameless)


def _unwanted(action: Action, stop: StopCause | None) -> StopCause | None:
    """Why nobody wants the action any more, if that is so."""
    if action.cancel_requested_time_us is not None and stop is not StopCause.DEADLINE_EXCEEDED:
        return StopCause.CANCELLED_BY_CALLER
    return stop if stop in UNWANTED else None


def _again_or_exhausted(
    action: Action, cause: str, now_us: int, *, failed: Failed | None = None, blameless: bool = False
) -> Verdict:
    """Nothing has happened: ready again, at no risk, as long as the budget lasts. What failed is told either way."""
    asked = None if failed is None else failed.retry_delay_seconds
    delay = _pause_seconds(action, asked, blameless)
    if _has_budget(action, now_us, delay, blameless or (failed is not None and failed.is_blameless)):
        verdict = Verdict(
            state=ActionState.QUEUED,
            effect=_unless_read(action, EffectState.NOT_DONE),
            cause=cause,
            ready_delay_seconds=delay,
        )
    else:
        verdict = _exhausted(action, RETRY_BUDGET, cause)
    if failed is None:
        return verdict
    return verdict._replace(
        message=failed.message, failure_code=failed.code, failure_category=failed.category
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
    delay = _pause_seconds(action, delay_seconds, blameless)
    if (
        not _may_be_repeated(action, now_us)
        or not _has_budget(action, now_us, delay, blameless)
        or action.cancel_requested_time_us is not None
    ):
        return _ambiguous(cause, message)
    return Verdict(
        state=ActionState.QUEUED,
        effect=EffectState.UNKNOWN,
        effect_unknown=True,
        cause=cause,
        ready_delay_seconds=delay,
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


def _cancelled(action: Action, cause: StopCause) -> Verdict:
    reasons = {StopCause.CANCELLED_BY_CALLER: "CANCELLED_BY_CALLER", StopCause.SHUTDOWN: "SHUTDOWN"}
    deadlines = (StopCause.DEADLINE_EXCEEDED, StopCause.TIMEOUT)
    reason = "DEADLINE_EXCEEDED" if cause in deadlines else reasons.get(cause, "SHUTDOWN")
    effect = _unless_read(action, EffectState.NOT_DONE)
    return Verdict(state=ActionState.CANCELLED, effect=effect, reason=reason, cause=cause.value)


def _exhausted(action: Action, reason: str, cause: str) -> Verdict:
    effect = _unless_read(action, EffectState.NOT_DONE)
    return Verdict(state=ActionState.EXHAUSTED, effect=effect, reason=reason, cause=cause)


def _failure(action: Action, failed: Failed, *, effect: EffectState, key_released: bool) -> Verdict:
    return Verdict(
        state=ActionState.FAILED,
        effect=_unless_read(action, effect),
        reason=failed.reason,
        message=failed.message,
        failure_code=failed.code,
        failure_category=failed.category,
        retry_delay_seconds=failed.retry_delay_seconds,
        key_released=key_released,
    )


def _may_have_touched(action: Action) -> bool:
    """This attempt."""
    return action.effect_class not in REPEATABLE and action.effect_begun


def _is_certainly_not_done(action: Action) -> bool:
    """Over all attempts."""
    return not _may_have_touched(action) and not action.effect_unknown


def _may_be_repeated(action: Action, now_us: int) -> bool:
    """The provider knows our key, and still keeps it."""
    expiry = action.effect_key_expire_time_us
    return action.effect_class == "IDEMPOTENT" and expiry is not None and now_us < expiry


def _can_run_again(action: Action) -> bool:
    """What was executed without a key nobody can ask for again, so nobody would ever run it."""
    return action.is_submitted or bool(action.idempotency_key)


def _retries_are_ours(action: Action) -> bool:
    """Not of one that was given up as ambiguous: the answer that comes late ends it, and tries nothing."""
    return action.is_submitted and action.state is ActionState.RUNNING


def _unless_read(action: Action, effect: EffectState) -> EffectState | None:
    return None if action.effect_class == "READ" else effect


def _has_budget(action: Action, now_us: int, delay_seconds: float, blameless: bool) -> bool:
    """For an attempt after this pause."""
    if not blameless and action.attempt >= action.attempts_max:
        return False
    end = budget_end_us(action)
    return end is None or now_us + int(delay_seconds * 1_000_000) < end


def _pause_seconds(action: Action, asked_seconds: float | None, blameless: bool) -> float:
    """At least what the handler asked for, in whole microseconds, as the store counts."""
    default = SUBMITTED_BACKOFF if action.is_submitted else EXECUTED_BACKOFF
    pause = 0.0 if blameless else (action.backoff or default).delay_seconds(action.attempt, action.action_id)
    return round(pause if asked_seconds is None else max(pause, asked_seconds), 6)
