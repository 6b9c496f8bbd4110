"""From a gRPC status, or a stored outcome, to an exception. Pure.

The details of google.rpc.Status are read first, the ASCII trailers where they are missing. A status with neither
came from the transport or from a proxy and says nothing about the action.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

from placet import errors
from placet.errors import PlacetError, Violation
from placet.v1 import action_pb2, error_reason_pb2, outcome_pb2

DOMAIN = "placet.dev"
DETAILS_TRAILER = "grpc-status-details-bin"

_BY_KIND: dict[int, type[PlacetError]] = {
    outcome_pb2.OUTCOME_KIND_REFUSED: errors.RefusedError,
    outcome_pb2.OUTCOME_KIND_WAITING: errors.WaitingError,
    outcome_pb2.OUTCOME_KIND_DENIED: errors.DeniedError,
    outcome_pb2.OUTCOME_KIND_FAILED: errors.FailedError,
    outcome_pb2.OUTCOME_KIND_CANCELLED: errors.ActionCancelled,
    outcome_pb2.OUTCOME_KIND_EXHAUSTED: errors.ExhaustedError,
    outcome_pb2.OUTCOME_KIND_AMBIGUOUS: errors.AmbiguousError,
    outcome_pb2.OUTCOME_KIND_PENDING: errors.PendingError,
}

_BY_REASON: dict[str, type[PlacetError]] = {
    "MALFORMED_REQUEST": errors.InvalidRequestError,
    "MALFORMED_JSON": errors.InvalidRequestError,
    "JSON_NOT_INTEROPERABLE": errors.InvalidRequestError,
    "PAYLOAD_TOO_LARGE": errors.InvalidRequestError,
    "UNAUTHENTICATED": errors.UnauthenticatedError,
    "NOT_FOUND": errors.NotFoundError,
    "CURSOR_EXPIRED": errors.CursorExpiredError,
    "STALE_DIGEST": errors.ConflictError,
    "MANIFEST_REFUSED": errors.InvalidRequestError,
    "POLICY_SET_REFUSED": errors.InvalidRequestError,
    "SCOPE_MISSING": errors.PermissionDeniedError,
    "UNKNOWN_METHOD": errors.UnsupportedError,
    "CAPABILITY_NOT_FOUND": errors.NotFoundError,
    "HANDLER_NOT_FOUND": errors.RefusedError,
    "INPUT_SCHEMA_VIOLATION": errors.InvalidRequestError,
    "CONTRACT_VIOLATION": errors.InvalidRequestError,
    "IDEMPOTENCY_KEY_REQUIRED": errors.InvalidRequestError,
    "CREDENTIAL_MISMATCH": errors.PermissionDeniedError,
    "POLICY_REFUSED": errors.PolicyRefused,
    "AUTHORITY_UNAVAILABLE": errors.UnavailableError,
    "DURABILITY_UNAVAILABLE": errors.RefusedError,
    "AGENT_UNAVAILABLE": errors.RefusedError,
    "SESSION_BUSY": errors.ConflictError,
    "SESSION_CLOSED": errors.RefusedError,
    "RESUME_TOKEN_SPENT": errors.PermissionDeniedError,
    "IDEMPOTENCY_CONFLICT": errors.ConflictError,
    "MESSAGE_REPLAYED": errors.ConflictError,
    "APPROVAL_REQUIRED": errors.ApprovalRequired,
    "INPUT_REQUIRED": errors.InputRequired,
    "APPROVAL_DENIED": errors.ApprovalDenied,
    "APPROVAL_REVOKED": errors.ApprovalRevoked,
    "APPROVAL_EXPIRED": errors.ApprovalExpired,
    "NOT_ELIGIBLE": errors.NotEligible,
    "DECISION_CONFLICT": errors.DecisionConflict,
    "HANDLER_FAILED": errors.FailedError,
    "OUTPUT_SCHEMA_VIOLATION": errors.FailedError,
    "CONNECTOR_UNAVAILABLE": errors.FailedError,
    "CANCELLED_BY_CALLER": errors.ActionCancelled,
    "DEADLINE_EXCEEDED": errors.ActionCancelled,
    "SHUTDOWN": errors.ActionCancelled,
    "RETRY_BUDGET": errors.ExhaustedError,
    "TURN_BUDGET": errors.ExhaustedError,
    "LOOP_BUDGET": errors.ExhaustedError,
    "SPEND_BUDGET": errors.ExhaustedError,
    "QUEUE_DELAY": errors.ExhaustedError,
    "EFFECT_AMBIGUOUS": errors.AmbiguousError,
    "DUPLICATE_REFUSED": errors.ConflictError,
    "QUOTA_EXCEEDED": errors.UnavailableError,
    "OVERLOADED": errors.UnavailableError,
    "STORE_UNAVAILABLE": errors.UnavailableError,
    "WAIT_EXPIRED": errors.PendingError,
    "DRAINING": errors.UnavailableError,
    "INTERNAL": errors.ServerFaultError,
    "STATE_CONFLICT": errors.ConflictError,
    "JOURNAL_MISMATCH": errors.ConflictError,
    "CHILD_LIMIT": errors.RefusedError,
}

# For reasons that are younger than this client.
_BY_CODE: dict[str, type[PlacetError]] = {
    "INVALID_ARGUMENT": errors.InvalidRequestError,
    "UNAUTHENTICATED": errors.UnauthenticatedError,
    "PERMISSION_DENIED": errors.PermissionDeniedError,
    "NOT_FOUND": errors.NotFoundError,
    "ALREADY_EXISTS": errors.ConflictError,
    "OUT_OF_RANGE": errors.CursorExpiredError,
    "FAILED_PRECONDITION": errors.RefusedError,
    "UNIMPLEMENTED": errors.UnsupportedError,
    "UNAVAILABLE": errors.UnavailableError,
    "RESOURCE_EXHAUSTED": errors.UnavailableError,
    "INTERNAL": errors.ServerFaultError,
}

_CODE_OF_KIND = {
    outcome_pb2.OUTCOME_KIND_WAITING: "FAILED_PRECONDITION",
    outcome_pb2.OUTCOME_KIND_REFUSED: "PERMISSION_DENIED",
    outcome_pb2.OUTCOME_KIND_DENIED: "PERMISSION_DENIED",
    outcome_pb2.OUTCOME_KIND_FAILED: "ABORTED",
    outcome_pb2.OUTCOME_KIND_CANCELLED: "CANCELLED",
    outcome_pb2.OUTCOME_KIND_EXHAUSTED: "ABORTED",
    outcome_pb2.OUTCOME_KIND_AMBIGUOUS: "UNKNOWN",
    outcome_pb2.OUTCOME_KIND_PENDING: "DEADLINE_EXCEEDED",
}


class RpcFailure(Protocol):
    """What grpc.RpcError and grpc.aio.AioRpcError have in common."""

    def code(self) -> Any: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Any: ...


@dataclass(slots=True)
class _Details:
    info: error_details_pb2.ErrorInfo | None = None
    outcome: outcome_pb2.Outcome | None = None
    retry_delay_seconds: float | None = None
    violations: list[Violation] = field(default_factory=list)


def error_of_rpc(failure: RpcFailure) -> PlacetError:
    """The exception of a call that grpc ended with a status other than OK."""
    code = failure.code()
    return error_of_status(
        "UNKNOWN" if code is None else str(code.name),
        failure.details() or "",
        failure.trailing_metadata() or (),
    )


def error_of_status(code: str, message: str, trailers: Iterable[tuple[str, str | bytes]]) -> PlacetError:
    """`code` is the canonical name; `trailers` as grpc hands them over, binary ones as bytes."""
    by_name = dict(trailers)
    details = _read(by_name.get(DETAILS_TRAILER))
    info = details.info
    if info is None:
        return _of_trailers(code, message, by_name)
    outcome = details.outcome
    return _class_of(info.reason, outcome, code)(
        message,
        code=code,
        reason=info.reason,
        metadata=info.metadata,
        outcome=outcome,
        action_id=_action_id(outcome, info.metadata.get("action_id", ""), by_name),
        violations=tuple(details.violations),
        retry_delay_seconds=_delay_of(outcome, details.retry_delay_seconds),
    )


def error_of_message(status: status_pb2.Status) -> PlacetError:
    """The exception of a status that came as a message: one item's of many."""
    known = code_pb2.Code.DESCRIPTOR.values_by_number.get(status.code)
    trailers = ((DETAILS_TRAILER, status.SerializeToString()),)
    return error_of_status("UNKNOWN" if known is None else known.name, status.message, trailers)


def error_of_action(action: action_pb2.Action) -> PlacetError | None:
    """None for SUCCEEDED."""
    return error_of_outcome(action.outcome, action.action_id)


def error_of_outcome(outcome: outcome_pb2.Outcome, action_id: str = "") -> PlacetError | None:
    """None for SUCCEEDED."""
    if outcome.kind == outcome_pb2.OUTCOME_KIND_SUCCEEDED:
        return None
    code = _CODE_OF_KIND.get(outcome.kind, "UNKNOWN")
    reason = (
        error_reason_pb2.ErrorReason.Name(outcome.reason).removeprefix("ERROR_REASON_")
        if outcome.reason
        else ""
    )
    return _class_of(reason, outcome, code)(
        outcome.message or "see the action",
        code="DEADLINE_EXCEEDED" if reason == "DEADLINE_EXCEEDED" else code,
        reason=reason,
        outcome=outcome,
        action_id=outcome.action_id or action_id,
        retry_delay_seconds=_delay_of(outcome, None),
    )


def _of_trailers(code: str, message: str, trailers: dict[str, str | bytes]) -> PlacetError:
    reason = _text(trailers, "placet-reason")
    action_id = _text(trailers, "placet-action-id")
    if not reason:
        return errors.TransportError(
            f"{message or 'no message'} (not an answer of Placet: the outcome is not known)",
            code=code,
            action_id=action_id,
        )
    kind = "OUTCOME_KIND_" + _text(trailers, "placet-outcome")
    outcome = None
    if kind in outcome_pb2.OutcomeKind.keys():  # noqa: SIM118
        outcome = outcome_pb2.Outcome(kind=outcome_pb2.OutcomeKind.Value(kind), action_id=action_id)
    return _class_of(reason, outcome, code)(
        message, code=code, reason=reason, outcome=outcome, action_id=action_id
    )


def _class_of(reason: str, outcome: outcome_pb2.Outcome | None, code: str) -> type[PlacetError]:
    """The reason is the narrowest word; a kind that says more than REFUSED decides over an unknown reason."""
    known = _BY_REASON.get(reason)
    if known is not None:
        return known
    if outcome is not None and outcome.kind in _BY_KIND and outcome.kind != outcome_pb2.OUTCOME_KIND_REFUSED:
        return _BY_KIND[outcome.kind]
    return _BY_CODE.get(code, errors.RefusedError if outcome is not None else PlacetError)


def _read(trailer: str | bytes | None) -> _Details:
    details = _Details()
    if not isinstance(trailer, bytes):
        return details
    try:
        for packed in status_pb2.Status.FromString(trailer).details:
            _take(details, packed)
    except DecodeError:
        # Somebody cut the trailer: what cannot be read is not ours to guess.
        return _Details()
    return details


def _take(details: _Details, packed: Any) -> None:
    info = error_details_pb2.ErrorInfo()
    if packed.Is(info.DESCRIPTOR):
        packed.Unpack(info)
        if info.domain == DOMAIN:
            details.info = info
    elif packed.Is(outcome_pb2.Outcome.DESCRIPTOR):
        details.outcome = outcome_pb2.Outcome()
        packed.Unpack(details.outcome)
    elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
        retry = error_details_pb2.RetryInfo()
        packed.Unpack(retry)
        details.retry_delay_seconds = retry.retry_delay.ToTimedelta().total_seconds()
    elif packed.Is(error_details_pb2.BadRequest.DESCRIPTOR):
        bad = error_details_pb2.BadRequest()
        packed.Unpack(bad)
        details.violations += [
            Violation(field=found.field, rule=found.reason, description=found.description)
            for found in bad.field_violations
        ]


def _delay_of(outcome: outcome_pb2.Outcome | None, otherwise: float | None) -> float | None:
    if outcome is not None and outcome.HasField("retry_delay"):
        return outcome.retry_delay.ToTimedelta().total_seconds()
    return otherwise


def _action_id(outcome: outcome_pb2.Outcome | None, named: str, trailers: dict[str, str | bytes]) -> str:
    return (outcome.action_id if outcome is not None else "") or named or _text(trailers, "placet-action-id")


def _text(trailers: dict[str, str | bytes], name: str) -> str:
    value = trailers.get(name, "")
    return value if isinstance(value, str) else value.decode("ascii", "replace")
