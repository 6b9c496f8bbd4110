"""What a row means to its caller: kind, effect, retry advice, and the error that a call ends with."""

from __future__ import annotations

from typing import assert_never

from placet_server.model.action import Action
from placet_server.model.budget_errors import budget_spent
from placet_server.model.connector_errors import ConnectorUnavailable
from placet_server.model.decision_errors import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalRequired,
    ApprovalRevoked,
    InputRequired,
)
from placet_server.model.ending_errors import (
    CancelledByCaller,
    DeadlineExceeded,
    EffectAmbiguous,
    HandlerFailed,
    OutputSchemaViolation,
    QueueDelayExhausted,
    RetryBudgetExhausted,
    Shutdown,
)
from placet_server.model.errors import Code, PlacetError, WaitExpired
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, FailureCategory, Outcome, OutcomeKind, RetryAdvice
from placet_server.model.policy_errors import PolicyRefused
from placet_server.model.wait import WaitKind

_KINDS = {
    ActionState.QUEUED: OutcomeKind.PENDING,
    ActionState.RUNNING: OutcomeKind.PENDING,
    ActionState.WAITING: OutcomeKind.WAITING,
    ActionState.AMBIGUOUS: OutcomeKind.AMBIGUOUS,
    ActionState.SUCCEEDED: OutcomeKind.SUCCEEDED,
    ActionState.FAILED: OutcomeKind.FAILED,
    ActionState.CANCELLED: OutcomeKind.CANCELLED,
    ActionState.EXHAUSTED: OutcomeKind.EXHAUSTED,
    ActionState.DENIED: OutcomeKind.DENIED,
    ActionState.REFUSED: OutcomeKind.REFUSED,
}


def outcome_of(action: Action) -> Outcome:
    """The same for whoever asks, however often."""
    # Nobody has to do anything for one that waits for its steps alone.
    kind = OutcomeKind.PENDING if action.is_parked and not action.waits else _KINDS[action.state]
    return Outcome(
        kind=kind,
        reason=_reason(action, kind),
        action_id=action.action_id,
        attempt=action.attempt,
        retry_advice=_advice(action, kind),
        retry_delay_seconds=action.retry_delay_seconds,
        failure_code=action.failure_code,
        message=action.message,
        effect=_effect(action),
        waits=action.waits,
    )


def _reason(action: Action, kind: OutcomeKind) -> str | None:
    """Also of a state that is no end."""
    match kind:
        case OutcomeKind.PENDING:
            return "WAIT_EXPIRED"
        case OutcomeKind.WAITING:
            return "INPUT_REQUIRED" if _asks_for_input(action) else "APPROVAL_REQUIRED"
        case _:
            return action.reason


def error_of(action: Action) -> PlacetError | None:
    """None for SUCCEEDED. The outcome is attached."""
    if action.state is ActionState.SUCCEEDED:
        return None
    error = _error(action)
    if error is not None:
        error.outcome = outcome_of(action)
    return error


def _effect(action: Action) -> EffectState | None:
    if action.effect_class == "READ":
        return None
    if action.is_open_composed and action.effect_begun:
        return EffectState.NOT_DONE if action.steps_did_nothing else EffectState.UNKNOWN
    if action.effect_begun and action.state is ActionState.RUNNING:
        return EffectState.UNKNOWN
    return (
        EffectState.UNKNOWN if action.effect_unknown and action.state is ActionState.QUEUED else action.effect
    )


def _advice(action: Action, kind: OutcomeKind) -> RetryAdvice:
    match kind:
        case OutcomeKind.SUCCEEDED:
            return RetryAdvice.NEVER
        case OutcomeKind.PENDING:
            return RetryAdvice.SAME_KEY if action.idempotency_key else RetryAdvice.AFTER_WAIT
        case OutcomeKind.AMBIGUOUS | OutcomeKind.WAITING:
            return RetryAdvice.AFTER_WAIT
        case _ if action.effect in (EffectState.DONE, EffectState.UNKNOWN):
            # Another key would do it a second time.
            return RetryAdvice.NEVER
        case OutcomeKind.FAILED if action.key_released:
            return RetryAdvice.SAME_KEY
        case _:
            return RetryAdvice.NEW_KEY


def _error(action: Action) -> PlacetError | None:
    match action.state:
        case ActionState.SUCCEEDED:
            return None
        case ActionState.QUEUED | ActionState.RUNNING:
            return WaitExpired(state=action.state.value)
        case ActionState.WAITING:
            return _waiting(action)
        case ActionState.DENIED:
            return _denied(action)
        case ActionState.REFUSED if action.reason == "CAPABILITY_NOT_FOUND":
            return CapabilityNotFound(capability=action.capability, version=action.version)
        case ActionState.REFUSED:
            return PolicyRefused(
                capability=action.capability, policies=action.cause or "", problem="forbidden", refusal_id=""
            )
        case ActionState.AMBIGUOUS:
            return EffectAmbiguous(cause=action.cause or "UNKNOWN")
        case ActionState.EXHAUSTED:
            return _exhausted(action)
        case ActionState.CANCELLED:
            return _cancelled(action)
        case ActionState.FAILED:
            return _failed(action)
        case _:
            assert_never(action.state)


def _asks_for_input(action: Action) -> bool:
    """Of the first that people have to do something about."""
    kind = action.waits[0].kind if action.is_parked and action.waits else action.cause
    return kind == WaitKind.INPUT


def _waiting(action: Action) -> PlacetError:
    if action.is_parked and not action.waits:
        return WaitExpired(state=action.state.value)
    required = InputRequired if _asks_for_input(action) else ApprovalRequired
    approval_id = action.waits[0].approval_id if action.is_parked else action.approval_id
    return required(approval_id=approval_id or "")


def _denied(action: Action) -> PlacetError:
    approval_id = action.approval_id or ""
    match action.reason:
        case "APPROVAL_REVOKED":
            return ApprovalRevoked(approval_id=approval_id)
        case "APPROVAL_EXPIRED":
            return ApprovalExpired(approval_id=approval_id)
        case _:
            return ApprovalDenied(approval_id=approval_id)


def _exhausted(action: Action) -> PlacetError:
    if action.reason == "QUEUE_DELAY":
        return QueueDelayExhausted(queue=action.queue)
    if (spent := budget_spent(action.reason or "", action.cause or "")) is not None:
        return spent
    return RetryBudgetExhausted(attempts=action.attempt)


def _cancelled(action: Action) -> PlacetError:
    match action.reason:
        case "DEADLINE_EXCEEDED":
            return DeadlineExceeded()
        case "SHUTDOWN":
            return Shutdown()
        case _:
            return CancelledByCaller()


def _failed(action: Action) -> PlacetError:
    if action.reason == "OUTPUT_SCHEMA_VIOLATION":
        return OutputSchemaViolation(capability=action.capability, path=action.cause or "")
    if action.reason == "CONNECTOR_UNAVAILABLE":
        return ConnectorUnavailable(
            code=Code.UNAVAILABLE if action.key_released else Code.ABORTED,
            capability=action.capability,
            failure_code=action.failure_code,
            message=action.message,
            retry_delay_seconds=action.retry_delay_seconds,
        )
    return HandlerFailed(
        code=Code.UNAVAILABLE if action.key_released else Code.ABORTED,
        failure_code=action.failure_code,
        category=(action.failure_category or FailureCategory.PERMANENT).value,
        message=action.message,
        retry_delay_seconds=action.retry_delay_seconds,
    )
