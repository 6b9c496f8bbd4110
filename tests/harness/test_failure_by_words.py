"""What a failure is, is told by status, code and class. Words are whatever somebody wrote, be it the prompt."""

from __future__ import annotations

import json
import socket

import pytest

from placet.testing.model_servers import Drop, Fail, Say
from placet_server.harness.provider.answer import TurnFailure
from placet_server.model.entry import TurnProblem
from tests.harness.conversation import WIRES, asked, models_of

WORDS = (
    "rate limit exceeded, timeout, overloaded, invalid api key, maximum context length, prompt is too long, "
    "credit balance is too low, reduce the length of the messages"
)
STATUSES = {
    400: TurnProblem.REFUSED,
    401: TurnProblem.UNAUTHORIZED,
    402: TurnProblem.REFUSED,
    403: TurnProblem.UNAUTHORIZED,
    404: TurnProblem.REFUSED,
    408: TurnProblem.TIMEOUT,
    409: TurnProblem.REFUSED,
    413: TurnProblem.REFUSED,
    422: TurnProblem.REFUSED,
    429: TurnProblem.RATE_LIMITED,
    500: TurnProblem.UNAVAILABLE,
    502: TurnProblem.UNAVAILABLE,
    503: TurnProblem.UNAVAILABLE,
    504: TurnProblem.TIMEOUT,
    529: TurnProblem.RATE_LIMITED,
}


def body_of(wire: str, words: str) -> object:
    if wire == "openai":
        return {"error": {"message": words, "type": "some_error", "code": None, "param": None}}
    return {"type": "error", "error": {"type": "some_error", "message": words}}


async def failures(wire: str, steps: list[Fail], **entry: object) -> list[TurnFailure]:
    from placet_server.harness.provider import wire as messages

    found = []
    async with WIRES[wire]([*steps, Say("ok")]) as server:
        models = models_of(server, **entry)
        provider = models.provider("test", "acme")
        text = messages.request_text([f"{WORDS} " * 30])
        for _ in steps:
            with pytest.raises(TurnFailure) as failure:
                await asked(provider, [text])
            found.append(failure.value)
        await models.close()
        assert len(steps) == len(server.requests)
    return found


@pytest.mark.parametrize("wire", WIRES)
async def test_a_status_is_the_same_failure_whatever_words_come_with_it(wire: str) -> None:
    for words in (WORDS, ""):
        steps = [Fail(status, body=body_of(wire, words)) for status in STATUSES]
        found = await failures(wire, steps)
        assert STATUSES == {failure.status: failure.category for failure in found}
        assert not any(failure.charged for failure in found)


@pytest.mark.parametrize("wire", WIRES)
async def test_bodies_that_are_no_errors_of_the_provider_are_told_by_status(wire: str) -> None:
    found = await failures(
        wire, [Fail(503, body="<html>rate limit</html>"), Fail(429, body="[]"), Fail(400, body="")]
    )
    assert [TurnProblem.UNAVAILABLE, TurnProblem.RATE_LIMITED, TurnProblem.REFUSED] == [
        failure.category for failure in found
    ]


@pytest.mark.parametrize("wire", WIRES)
async def test_how_long_to_wait_is_the_providers_word(wire: str) -> None:
    found = await failures(wire, [Fail(429, retry_after="7"), Fail(503, retry_after="0"), Fail(429)])
    assert [7.0, 0.0, None] == [failure.retry_after_seconds for failure in found]


async def test_codes_tell_spent_accounts_and_long_contexts() -> None:
    found = await failures(
        "openai", [Fail(429, code="insufficient_quota"), Fail(400, code="context_length_exceeded")]
    )
    assert [TurnProblem.REFUSED, TurnProblem.CONTEXT_TOO_LONG] == [failure.category for failure in found]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_of_what_is_longer_than_the_model_takes_is_told_by_its_size(wire: str) -> None:
    found = await failures(wire, [Fail(400), Fail(413), Fail(401)], context_tokens=100)
    assert [TurnProblem.CONTEXT_TOO_LONG, TurnProblem.CONTEXT_TOO_LONG, TurnProblem.UNAUTHORIZED] == [
        failure.category for failure in found
    ]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_lost_connection_may_have_been_charged_for_and_a_refused_one_was_not(wire: str) -> None:
    from placet_server.harness.provider import wire as messages

    text = messages.request_text(["hi"])
    async with WIRES[wire]([Drop(), Say("ok")]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as lost:
            await asked(models.provider("test", "acme"), [text])
        await models.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    models = models_of(server, base_url=f"http://127.0.0.1:{port}")
    with pytest.raises(TurnFailure) as refused:
        await asked(models.provider("test", "acme"), [text])
    await models.close()
    assert [(TurnProblem.UNAVAILABLE, True), (TurnProblem.UNAVAILABLE, False)] == [
        (failure.value.category, failure.value.charged) for failure in (lost, refused)
    ]


@pytest.mark.parametrize("wire", WIRES)
async def test_what_a_failure_tells_is_bounded(wire: str) -> None:
    found = await failures(wire, [Fail(400, body=json.dumps(body_of(wire, "x" * 100_000)))])
    assert len(found[0].detail) <= 512
