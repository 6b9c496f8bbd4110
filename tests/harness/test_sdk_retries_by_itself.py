"""What is tried again is decided, counted and kept by the run: no client tries by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from placet.testing.model_servers import Fail, OpenAIServer, Say
from placet_server.harness.provider.adapter import Models, load
from placet_server.harness.provider.answer import TurnFailure
from placet_server.harness.provider.catalogue import Catalogue, Kind, ModelEntry
from placet_server.model.entry import TurnProblem
from tests.harness.conversation import asked, credentials

REMOTE = [kind for kind in Kind if kind is not Kind.LOCAL]


class Failing:
    """Answers everything with one status, and counts."""

    def __init__(self, status: int, location: str = "") -> None:
        self.status = status
        self.location = location
        self.requests: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.requests.append(head)
            more = f"Location: {self.location}\r\n" if self.location else ""
            body = b'{"message":"no"}'
            answer = f"HTTP/1.1 {self.status} No\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{answer}retry-after: 0\r\n{more}connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def failure_of(kind: Kind, failing: Failing) -> TurnFailure:
    from placet_server.harness.provider import wire

    await load()
    server = await asyncio.start_server(failing.serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    # Bedrock's own keys are only sent by TLS; what the machine has signs requests instead.
    credential = "" if kind is Kind.BEDROCK else "test"
    entry = ModelEntry(
        name="test",
        kind=kind,
        model="model-x",
        base_url=address,
        credential=credential,
        region="eu-central-1",
    )
    models = Models(lambda: Catalogue([entry]), credentials)
    async with server:
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [wire.request_text(["hi"])])
    await models.close()
    return failure.value


@pytest.mark.parametrize("kind", REMOTE)
async def test_no_client_of_any_kind_tries_twice(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    for status, category in ((429, TurnProblem.RATE_LIMITED), (503, TurnProblem.UNAVAILABLE)):
        failing = Failing(status)
        failure = await failure_of(kind, failing)
        assert 1 == len(failing.requests), kind
        assert (category, status) == (failure.category, failure.status), failure


@pytest.mark.parametrize("kind", [Kind.OPENAI, Kind.ANTHROPIC, Kind.GOOGLE, Kind.MISTRAL])
async def test_no_client_takes_its_key_along_to_where_it_is_sent(kind: Kind) -> None:
    elsewhere = Failing(200)
    server = await asyncio.start_server(elsewhere.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await failure_of(kind, Failing(307, f"http://localhost:{port}/v1/messages"))
    assert [] == elsewhere.requests


async def test_what_the_environment_says_to_clients_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(503)
    for name in (
        "OPENAI_BASE_URL",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
    ):
        monkeypatch.setenv(name, "http://127.0.0.1:9/elsewhere")
    for kind in (Kind.OPENAI, Kind.ANTHROPIC):
        await failure_of(kind, failing)
    assert 2 == len(failing.requests)
    assert not any("elsewhere" in head for head in failing.requests)


async def test_one_turn_is_one_request_and_its_tries_have_the_same_bytes() -> None:
    from tests.harness.conversation import Journaled, models_of

    steps: list[Any] = [Fail(429, "0"), Fail(503), Fail(500), Say("Done.")]
    async with OpenAIServer(steps) as server:
        models = models_of(server)
        run = Journaled(models, dies=True)
        await run.run("hi")
        await models.close()
        assert 4 == len(server.requests)
        assert 1 == len({request.body for request in server.requests})
    assert (1, 4) == (run.state.counters.turns, run.state.counters.requests)
