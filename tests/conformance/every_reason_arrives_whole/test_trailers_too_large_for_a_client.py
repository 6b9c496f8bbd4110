"""Each reason with everything it may carry, as long as nothing bounds it, reaches default clients whole, every time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2

from placet.v1 import outcome_pb2
from placet_server.model.errors import PlacetError
from placet_server.model.outcome import Outcome, OutcomeKind
from placet_server.rpc import error_mapping
from placet_server.rpc.call import Rpc
from placet_server.rpc.status import wire_status
from tests.conformance.conftest import Dial
from tests.conformance.hosted import hosted
from tests.conformance.program import Answer, Program
from tests.rpc.support import ACTION_ID, TOKEN, Setup, serving
from tests.rpc.test_status_too_large import CLASSES, worst

# One, three and four bytes each; all but the first are tripled by percent encoding.
LETTERS = {"a": "a", "root": "√", "rocket": "🚀", "percent": "%"}
REASON = {kind.reason: kind for kind in CLASSES}


async def refuse(rpc: Rpc[Any]) -> None:
    """Whatever the call's own metadata names."""
    (reason,), (letter,) = rpc.headers("x-reason"), rpc.headers("x-letter")
    raise made(reason, letter)


@cache
def made(reason: str, letter: str) -> PlacetError:
    return worst(REASON[reason], LETTERS[letter])


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """A server with every layer of the real one, whose handlers refuse as they are told. What is sent a thousand times
    is made once: of one error it is always the same, and takes longer to make than to send."""
    with pytest.MonkeyPatch.context() as patch, hosted(serving(Setup(behaviour=refuse))) as running:
        patch.setattr(error_mapping, "wire_status", cache(wire_status))
        yield running.target


@pytest.fixture
def refused(dial: Dial, target: str) -> Program:
    return dial(target, TOKEN)


def sent(reason: str, letter: str) -> dict[str, Any]:
    """What the server's own mapping makes of it, read without any transport."""
    wire = wire_status(worst(REASON[reason], LETTERS[letter]))
    trailers = dict(wire.trailers)
    status = status_pb2.Status.FromString(trailers.pop("grpc-status-details-bin"))
    kinds: tuple[Any, ...] = (
        error_details_pb2.ErrorInfo,
        outcome_pb2.Outcome,
        error_details_pb2.RetryInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.QuotaFailure,
    )
    found: dict[Any, list[Any]] = {kind: [] for kind in kinds}
    for detail in status.details:
        kind = next(k for k in kinds if detail.type_url.endswith(f"/{k.DESCRIPTOR.full_name}"))
        found[kind].append(kind.FromString(detail.value))
    infos, outcomes, delays, requests, quotas = found.values()
    return {
        "code": wire.code.name,
        "message": wire.message,
        "details": len(status.details),
        "infos": tuple((i.domain, i.reason, dict(i.metadata)) for i in infos),
        "outcomes": tuple(outcomes),
        "retry_seconds": tuple(d.retry_delay.seconds + d.retry_delay.nanos / 1e9 for d in delays),
        "violations": tuple((v.field, v.description, v.reason) for r in requests for v in r.field_violations),
        "quota": tuple((v.subject, v.description) for q in quotas for v in q.violations),
        "headers": {},
        "trailers": trailers,
        "responses": (),
    }


@pytest.mark.parametrize(
    ("rpc", "letter", "times"),
    [
        ("Execute", "root", 40),
        ("Execute", "percent", 4),
        ("ExecuteStream", "a", 4),
        ("ExecuteStream", "rocket", 4),
    ],
)
def test_every_reason_at_its_worst_arrives_as_it_was_sent_every_time(
    refused: Program, rpc: str, letter: str, times: int
) -> None:
    request = {"invocation": {"capability": "desk.echo"}}
    calls = {
        reason: refused.start(rpc, request, metadata={"x-reason": reason, "x-letter": letter}, times=times)
        for reason in REASON
    }
    for reason, call in calls.items():
        assert [Answer(**sent(reason, letter))] * times == call.answers()


@pytest.mark.parametrize("letter", LETTERS)
def test_what_is_sent_at_worst_still_says_everything_that_a_program_acts_on(letter: str) -> None:
    for reason in REASON:
        told = Answer(**sent(reason, letter))
        outcome = told.outcome
        assert ("placet.dev", reason) == told.infos[0][:2]
        assert (ACTION_ID, 2**31 - 1, "c" * 64) == (outcome.action_id, outcome.attempt, outcome.failure_code)
        assert outcome_pb2.RETRY_ADVICE_AFTER_WAIT == outcome.retry_advice
        assert outcome_pb2.EFFECT_STATE_UNKNOWN == outcome.effect
        assert 1_000_000 == outcome.retry_delay.seconds
        assert (reason, "AMBIGUOUS", ACTION_ID) == (
            told.trailers["placet-reason"],
            told.trailers["placet-outcome"],
            told.trailers["placet-action-id"],
        )
        assert 4 <= len(told.violations) <= 16
        assert LETTERS[letter] == told.violations[0][0][0] == told.outcome.message[0]
        assert (1_000_000.0,) == told.retry_seconds


def test_an_ending_that_may_be_resent_is_not_pushed_back() -> None:
    error = worst(REASON["HANDLER_FAILED"], "a")
    error.code = type(error.code).UNAVAILABLE
    assert "grpc-retry-pushback-ms" not in dict(wire_status(error).trailers)
    pending = worst(REASON["WAIT_EXPIRED"], "a")
    assert isinstance(pending.outcome, Outcome)
    pending.outcome = replace(pending.outcome, kind=OutcomeKind.PENDING)
    assert "grpc-retry-pushback-ms" not in dict(wire_status(pending).trailers)
