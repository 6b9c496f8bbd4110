"""A request is made while what says that it is made is still being written, and not sent before that is there."""

from __future__ import annotations

import asyncio

import pytest

from placet.testing.model_servers import Say
from placet_server.harness.observer import UNTRACED, Observed
from placet_server.harness.provider.adapter import Models, load
from placet_server.harness.provider.answer import Answer, BeforeSent, Pins
from placet_server.harness.provider.catalogue import Catalogue, Kind, ModelEntry
from placet_server.model.usage import Usage
from tests.harness.conversation import ALL_WIRES, OPENED, SETTINGS, credentials, models_of, nobody


class Gone(BaseException):
    """Nothing that a library may catch."""


class Counted:
    """See `TurnCounts`."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def asked_model(self, provider: str, model: str, seconds: float, error: str, usage: Usage | None) -> None:
        self.errors.append(error)


async def ask(models: Models, before_sent: BeforeSent, counts: Counted, seconds: float = 20.0) -> Answer:
    from placet_server.harness.provider import wire

    provider = models.provider("test", "acme")
    return await Observed(provider, provider.entry, counts, UNTRACED).turn(
        [wire.request_text(["look at A-1001"])],
        Pins(tools=OPENED.tools),
        SETTINGS,
        on_delta=nobody,
        timeout_seconds=seconds,
        before_sent=before_sent,
    )


@pytest.mark.parametrize("error", [Gone(), ValueError("the store rejects it")])
@pytest.mark.parametrize("kind", Kind)
async def test_nothing_is_sent_nor_counted_once_it_may_not_be_and_why_is_told_as_it_is(
    kind: Kind, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    connections: asyncio.Queue[str] = asyncio.Queue()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.put_nowait((await reader.read(4)).decode())
        writer.close()

    async def refuse() -> None:
        raise error

    await load()
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    entry = ModelEntry(
        name="test",
        kind=kind,
        model="model-x",
        base_url=f"http://127.0.0.1:{port}",
        credential="" if kind in (Kind.BEDROCK, Kind.LOCAL) else "test",
        region="eu-central-1",
    )
    models, counts = Models(lambda: Catalogue([entry]), credentials), Counted()
    async with server:
        with pytest.raises(type(error)) as raised:
            await ask(models, refuse, counts)
        await models.close()
        # Whoever had connected would come before this.
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"last")
        assert "last" == await connections.get()
        writer.close()
    assert (True, []) == (raised.value is error, counts.errors)


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_what_takes_longer_than_the_request_may_is_no_timeout_of_the_model(wire: str) -> None:
    times = []

    async def late() -> None:
        times.append(len(server.requests))
        if len(times) == 1:
            await asyncio.Event().wait()

    async with ALL_WIRES[wire]([Say("Found.")]) as server:
        models, counts = models_of(server), Counted()
        answer = await ask(models, late, counts, seconds=0.5)
        await models.close()
    assert (("Found.",), 1, [""]) == (answer.said, len(server.requests), counts.errors)
    assert [0] * len(times) == times
