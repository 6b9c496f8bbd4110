"""PlacetError → what goes over the wire: code, message, trailers.

All trailers together stay within TRAILER_BYTES_MAX, counted as HTTP/2 counts header lists and with base64 and
percent encoding grown, because default clients break above 8 KiB. What does not fit is cut in the order of CUTS,
least important first; the whole of it is in the action (GetAction) or in validate_only.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from placet.v1 import outcome_pb2
from placet_server.model.errors import Overloaded, PlacetError
from placet_server.model.identity_errors import QuotaExceeded
from placet_server.model.outcome import Outcome, OutcomeKind
from placet_server.rpc.convert.outcome import outcome_message
from placet_server.rpc.convert.time import duration
from placet_server.rpc.text import cut, cut_percent_encoded, percent_encoded_bytes

DOMAIN = "placet.dev"
TRAILER_BYTES_MAX = 4096
VIOLATIONS_MAX = 16
OUTCOME_MESSAGE_CHARACTERS_MAX = 512

ACTION_ID_TRAILER = "placet-action-id"
OUTCOME_TRAILER = "placet-outcome"
REASON_TRAILER = "placet-reason"
_DETAILS_TRAILER = "grpc-status-details-bin"
_PUSHBACK = ("grpc-retry-pushback-ms", "-1")

# Both mean that no outcome is recorded, so a client's own retry policy may act on them.
_RESENDABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})

# No end is recorded either, but resending is not what brings it about.
_STANDING = frozenset({OutcomeKind.PENDING, OutcomeKind.WAITING})

Trailers = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireStatus:
    """Arguments of `ServicerContext.abort`."""

    code: grpc.StatusCode
    message: str
    trailers: Trailers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Most bytes of each text, and how many violations and waits are named."""

    message: int
    outcome: int
    value: int
    violations: int
    description: int
    field: int
    waits: int
    wait: int


CUTS = (
    _Cut(message=768, outcome=2048, value=512, violations=16, description=512, field=512, waits=8, wait=256),
    _Cut(message=768, outcome=512, value=256, violations=16, description=160, field=256, waits=8, wait=128),
    _Cut(message=512, outcome=512, value=192, violations=16, description=96, field=96, waits=8, wait=64),
    _Cut(message=512, outcome=256, value=128, violations=16, description=48, field=64, waits=6, wait=64),
    _Cut(message=384, outcome=192, value=96, violations=12, description=32, field=64, waits=4, wait=48),
    _Cut(message=256, outcome=96, value=64, violations=8, description=24, field=48, waits=2, wait=48),
    _Cut(message=160, outcome=64, value=48, violations=4, description=16, field=32, waits=1, wait=32),
)


def wire_status(error: PlacetError) -> WireStatus:
    """The status of an error. Never raises for what an error may carry."""
    code = grpc.StatusCode[error.code.name]
    text = error.text()
    status = _build(error, code, text, CUTS[0])
    for limits in CUTS[1:]:
        if trailer_bytes(status) <= TRAILER_BYTES_MAX:
            break
        status = _build(error, code, text, limits)
    return status


def status_message(error: PlacetError) -> status_pb2.Status:
    """The same as a message, for an answer about many."""
    details = dict(wire_status(error).trailers)[_DETAILS_TRAILER]
    assert isinstance(details, bytes)
    return status_pb2.Status.FromString(details)


def outcome_trailers(outcome_kind: str, action_id: str) -> Trailers:
    """What an OK answer about an action carries."""
    return ((ACTION_ID_TRAILER, action_id), (OUTCOME_TRAILER, outcome_kind))


def trailer_bytes(status: WireStatus) -> int:
    """Size of the trailers as an HTTP/2 header list (RFC 9113, 6.5.2), with grpc-status and grpc-message."""
    total = len("grpc-status") + 2 + 32 + len("grpc-message") + percent_encoded_bytes(status.message) + 32
    for name, value in status.trailers:
        length = (len(value) + 2) // 3 * 4 if isinstance(value, bytes) else len(value)
        total += len(name) + length + 32
    return total


def _build(error: PlacetError, code: grpc.StatusCode, text: str, limits: _Cut) -> WireStatus:
    message = cut_percent_encoded(text, limits.message)
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in _details(error, message, limits):
        name = detail.DESCRIPTOR.full_name
        status.details.append(Any(type_url=f"type.googleapis.com/{name}", value=detail.SerializeToString()))
    return WireStatus(
        code=code,
        message=message,
        trailers=(*_ascii_trailers(error, code), (_DETAILS_TRAILER, status.SerializeToString())),
    )


def _details(error: PlacetError, message: str, limits: _Cut) -> list[Message]:
    metadata = {name: cut(value, limits.value) for name, value in error.metadata().items()}
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    ]
    if error.outcome is not None:
        details.append(_outcome_detail(error.outcome, limits))
    delay = _retry_delay(error)
    if delay is not None:
        details.append(error_details_pb2.RetryInfo(retry_delay=duration(delay)))
    if error.violations:
        details.append(_bad_request(error, limits))
    if isinstance(error, Overloaded):
        details.append(_quota_failure(error.limit, message))
    elif isinstance(error, QuotaExceeded):
        details.append(_quota_failure(error.quota, message))
    return details


def _outcome_detail(outcome: Outcome, limits: _Cut) -> outcome_pb2.Outcome:
    detail = outcome_message(outcome)
    detail.message = cut(outcome.message[:OUTCOME_MESSAGE_CHARACTERS_MAX], limits.outcome)
    del detail.waits[limits.waits :]
    for wait in detail.waits:
        wait.title = cut(wait.title, limits.wait)
        wait.step_path = cut(wait.step_path, limits.wait)
    return detail


def _bad_request(error: PlacetError, limits: _Cut) -> error_details_pb2.BadRequest:
    return error_details_pb2.BadRequest(
        field_violations=[
            error_details_pb2.BadRequest.FieldViolation(
                field=cut(violation.field, limits.field),
                description=cut(violation.description, limits.description),
                reason=cut(violation.rule, 48),
            )
            for violation in error.violations[: min(limits.violations, VIOLATIONS_MAX)]
        ]
    )


def _quota_failure(subject: str, message: str) -> error_details_pb2.QuotaFailure:
    violation = error_details_pb2.QuotaFailure.Violation(subject=cut(subject, 64), description=message)
    return error_details_pb2.QuotaFailure(violations=[violation])


def _retry_delay(error: PlacetError) -> float | None:
    if error.retry_delay_seconds is not None:
        return error.retry_delay_seconds
    return error.outcome.retry_delay_seconds if error.outcome is not None else None


def _ascii_trailers(error: PlacetError, code: grpc.StatusCode) -> Trailers:
    trailers: Trailers = ((REASON_TRAILER, error.reason),)
    outcome = error.outcome
    if outcome is None:
        return trailers
    trailers += ((OUTCOME_TRAILER, outcome.kind.value),)
    if outcome.action_id:
        trailers += ((ACTION_ID_TRAILER, outcome.action_id),)
        if outcome.kind not in _STANDING and code not in _RESENDABLE:
            trailers += (_PUSHBACK,)
    return trailers
