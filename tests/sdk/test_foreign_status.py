"""Statuses of Placet, of strangers, of younger servers, cut and emptied ones: what the client makes of them."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from placet import errors, status
from placet.errors import Violation
from placet.v1 import error_reason_pb2, outcome_pb2
from tests.sdk.support import ACTION_ID, details, outcome

Code = grpc.StatusCode
REASONS = [name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.keys()][1:]  # noqa: SIM118
TRAILER = "grpc-status-details-bin"


def _read(trailer: bytes, code: str = "ABORTED") -> errors.PlacetError:
    return status.error_of_status(code, "text", [(TRAILER, trailer)])


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_the_contract_has_a_class_of_its_kind(reason: str) -> None:
    error = _read(details(reason, code=Code.ABORTED))
    assert type(error) is not errors.PlacetError
    assert type(error) is not errors.TransportError
    assert (reason, "ABORTED") == (error.reason, error.code)


def test_the_client_knows_no_reason_that_the_contract_does_not_have() -> None:
    assert set(REASONS) == set(status._BY_REASON)


def test_all_details_arrive() -> None:
    ending = outcome("FAILED", "HANDLER_FAILED", advice="NEW_KEY", effect="DONE", retry_delay_seconds=0.25)
    violation = Violation(field="/amount", rule="pattern", description="is no amount")
    trailer = details(
        "HANDLER_FAILED",
        code=Code.ABORTED,
        metadata={"failure_code": "card_declined"},
        outcome=ending,
        violations=[violation],
    )
    error = _read(trailer)
    assert isinstance(error, errors.FailedError)
    assert ("text", "HANDLER_FAILED: text") == (error.message, str(error))
    assert (ACTION_ID, "DONE", "NEW_KEY") == (error.action_id, error.effect, error.retry_advice)
    assert (0.25, (violation,)) == (error.retry_delay_seconds, error.violations)
    assert ("card_declined", ending) == (error.failure_code, error.outcome)


def test_retry_info_counts_where_no_action_exists() -> None:
    error = _read(
        details("OVERLOADED", code=Code.RESOURCE_EXHAUSTED, retry_delay_seconds=0.5), "RESOURCE_EXHAUSTED"
    )
    assert isinstance(error, errors.UnavailableError)
    assert (0.5, "SAME_KEY", "") == (error.retry_delay_seconds, error.retry_advice, error.action_id)


def test_a_conflict_names_the_action_that_holds_the_key() -> None:
    error = _read(
        details("IDEMPOTENCY_CONFLICT", code=Code.ALREADY_EXISTS, metadata={"action_id": ACTION_ID})
    )
    assert isinstance(error, errors.ConflictError)
    assert error.action_id == ACTION_ID


@pytest.mark.parametrize(
    ("reason", "code", "ending", "expected"),
    [
        ("SPEND_BUDGET", "ABORTED", outcome("EXHAUSTED", "RETRY_BUDGET"), errors.ExhaustedError),
        (
            "MOON_REFUSED",
            "PERMISSION_DENIED",
            outcome("REFUSED", "NOT_FOUND"),
            errors.PermissionDeniedError,
        ),
        ("SESSION_GONE", "NOT_FOUND", None, errors.NotFoundError),
        ("TIDE_TURNED", "ABORTED", None, errors.PlacetError),
    ],
)
def test_a_reason_younger_than_the_client_is_read_by_kind_then_by_code(
    reason: str, code: str, ending: outcome_pb2.Outcome | None, expected: type[errors.PlacetError]
) -> None:
    error = _read(details(reason, code=grpc.StatusCode[code], outcome=ending), code)
    assert type(error) is expected
    assert error.reason == reason


@pytest.mark.parametrize("code", [code.name for code in Code if code is not Code.OK])
def test_a_status_of_a_stranger_leaves_the_outcome_unknown(code: str) -> None:
    error = _read(details("NOT_FOUND", code=grpc.StatusCode[code], domain="proxy.example.com"), code)
    assert isinstance(error, errors.TransportError)
    assert ("", code, "UNKNOWN", "SAME_KEY") == (error.reason, error.code, error.effect, error.retry_advice)


@pytest.mark.parametrize(
    "trailer", [b"", b"\xff\xff\xff", details("NOT_FOUND", code=Code.NOT_FOUND)[:-9], "text"]
)
def test_a_cut_or_foreign_trailer_is_not_guessed_at(trailer: Any) -> None:
    assert isinstance(status.error_of_status("NOT_FOUND", "", [(TRAILER, trailer)]), errors.TransportError)


def test_a_damaged_detail_among_good_ones_is_not_guessed_at() -> None:
    whole = status_pb2.Status()
    whole.details.add().Pack(error_details_pb2.ErrorInfo(reason="NOT_FOUND", domain="placet.dev"))
    whole.details.add(type_url="type.googleapis.com/placet.v1.Outcome", value=b"\xff")
    assert isinstance(_read(whole.SerializeToString()), errors.TransportError)


def test_ascii_trailers_stand_in_for_lost_details() -> None:
    trailers: list[tuple[str, str | bytes]] = [
        ("placet-reason", "EFFECT_AMBIGUOUS"),
        ("placet-outcome", "AMBIGUOUS"),
        ("placet-action-id", ACTION_ID),
    ]
    error = status.error_of_status("UNKNOWN", "text", trailers)
    assert isinstance(error, errors.AmbiguousError)
    assert ("EFFECT_AMBIGUOUS", ACTION_ID) == (error.reason, error.action_id)


def test_a_stored_outcome_raises_as_its_status_would() -> None:
    assert status.error_of_outcome(outcome_pb2.Outcome(kind=outcome_pb2.OUTCOME_KIND_SUCCEEDED)) is None
    late = status.error_of_outcome(outcome("CANCELLED", "DEADLINE_EXCEEDED"))
    assert isinstance(late, errors.ActionCancelled)
    assert ("DEADLINE_EXCEEDED", ACTION_ID, "NOT_DONE") == (late.code, late.action_id, late.effect)
