"""What a provider may send without end, or what grows on the way to where it is kept, is bounded and told as that."""

from __future__ import annotations

import asyncio
import gzip
import json
from functools import cache

import pytest

from placet.testing.model_servers import Say, call
from placet_server.harness.plan import Plan, PlannedCall, plan
from placet_server.harness.provider.answer import Answer, Picture, TurnFailure
from placet_server.harness.result import RESULTS_BYTES_MAX, results_of
from placet_server.model.entry import TurnProblem
from placet_server.model.usage import Counters
from tests.harness.conversation import ALL_WIRES, LOOKUP, OPENED, WIRES, asked, ended, models_of

MIB = 2**20
ENDLESS = {
    "line": (200, "", b"x" * MIB),
    "comments": (200, "", b": " + b"x" * MIB + b"\n\n"),
    "error": (500, "", b"x" * MIB),
    "compressed": (200, "gzip", None),
    "compressed error": (400, "gzip", None),
    "unknown": (200, "br", b"x" * MIB),
}


@cache
def compressed() -> bytes:
    """Takes its second when it is needed, not in every process that collects tests."""
    return gzip.compress(b"x" * 200 * MIB)


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
async def test_a_response_without_an_end_is_hung_up_on(
    wire: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from placet_server.harness.provider import exchange
    from placet_server.harness.provider import wire as messages

    monkeypatch.setattr(exchange, "BYTES_MAX", MIB)
    status, encoding, given = ENDLESS[name]
    piece = given or compressed()
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            kind = f"HTTP/1.1 {status} X\r\ncontent-type: text/event-stream\r\n"
            writer.write(f"{kind}content-encoding: {encoding or 'identity'}\r\n\r\n".encode())
            while sent < 100 * MIB:
                writer.write(piece)
                sent += len(piece)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with ALL_WIRES[wire]([]) as server:
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        models = models_of(server, base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [messages.request_text(["look"])])
        await models.close()
        listener.close()
    assert (TurnProblem.INVALID, True) == (failure.value.category, failure.value.charged)
    assert sent < 16 * MIB


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "picture",
    [Picture(media_type="text/plain", data=b"\xff\xfe"), Picture(media_type="video/mp4", data=b"x")],
    ids=["no text", "video"],
)
async def test_what_cannot_be_sent_is_invalid_and_free(wire: str, picture: Picture) -> None:
    from placet_server.harness.provider import wire as messages

    async with WIRES[wire]([Say("ok")]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [messages.request_text(["look", picture])])
        await models.close()
        assert [] == server.requests
    assert (TurnProblem.INVALID, False) == (failure.value.category, failure.value.charged)


def test_results_that_grow_by_their_escapes_are_told_by_their_size() -> None:
    call = PlannedCall(call=1, provider_id="a", tool=LOOKUP, alias=LOOKUP.alias, step="turn/1/call/1")
    end = ended(output=json.dumps([""] * 300_000, separators=(",", ":")))
    (one,) = results_of(Plan(turn=1, calls=(call,)), {1: end}, sees_sensitive=True)
    assert "too many" not in one.text
    two = Plan(turn=1, calls=(call, PlannedCall(call=2, provider_id="b", tool=LOOKUP, alias="x", step="s")))
    told = results_of(two, {1: end, 2: end}, sees_sensitive=True)
    assert sum(len(json.dumps(part.text)) for part in told) <= RESULTS_BYTES_MAX
    assert all("900001 bytes" in part.text for part in told)


async def test_an_answer_of_more_calls_than_anybody_means_is_hung_up_on() -> None:
    from placet_server.harness.provider import wire

    said = Say("", *(call("orders-lookup", order=str(n)) for n in range(300)))
    async with ALL_WIRES["openai"]([said]) as server:
        models = models_of(server)
        with pytest.raises(TurnFailure) as failure:
            await asked(models.provider("test", "acme"), [wire.request_text(["look"])])
        await models.close()
    assert (TurnProblem.INVALID, True) == (failure.value.category, failure.value.charged)


def test_words_in_more_parts_than_an_answer_may_have_are_joined() -> None:
    answer = Answer(text="{}", said=tuple(map(str, range(300))), finish="stop")
    decided = plan(answer, OPENED, turn=1, counters=Counters(), equal={})
    assert decided.output is not None
    parts = [part["text"] for part in json.loads(decided.output)["parts"]]
    assert 255 == len(parts)
    assert "".join(map(str, range(300))) == "".join(parts)
