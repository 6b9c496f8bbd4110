"""How soon who listens to runs has what their models say, for benchmarks/agents.py."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from benchmarks import agent_app
from benchmarks.agent_shapes import ASKED, CLOCK_LENGTH, PIECES, SPOKEN, age_ms
from benchmarks.contenders import Placet
from benchmarks.load import LoadFailed
from benchmarks.processes import resident_bytes
from placet.aio import AsyncClient
from placet.run_event import Ended, TextDelta

PLACET, STREAMED = "placet", "streamed"
STREAMS_OF_A_CONNECTION = 50
STREAM_SECONDS_MAX = 300.0


async def first_deltas(server: Placet, url: str, count: int) -> dict[str, Any]:
    """Milliseconds from when the model wrote its first words until a client has them, in turns: of a run, and of the
    provider's client alone.
    """
    from openai import AsyncOpenAI

    ours: list[float] = []
    theirs: list[float] = []
    asked: Any = {"model": SPOKEN, "messages": [{"role": "user", "content": ASKED}], "stream": True}
    async with (
        AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as bare,
        AsyncClient.connect(f"127.0.0.1:{server.port.number}", token=server.token) as client,
    ):
        for number in range(count + 10):
            heard = [each async for each in _ages_of_run(client)]
            streamed = [each async for each in _ages_of_stream(await bare.chat.completions.create(**asked))]
            if number >= 10:
                ours.append(heard[0])
                theirs.append(streamed[0])
    return {
        "runs": count,
        PLACET: _spread(ours),
        STREAMED: _spread(theirs),
        "over_ms": round(statistics.median(ours) - statistics.median(theirs), 1),
    }


async def _ages_of_run(client: AsyncClient) -> AsyncIterator[float]:
    """Of its first words; read to its end."""
    said = ""
    async with client.ask_stream(agent_app.SPEAKING, ASKED) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                if not said:
                    yield age_ms(event.text)
                said += event.text


async def _ages_of_stream(stream: Any) -> AsyncIterator[float]:
    is_first = True
    async for chunk in stream:
        if is_first and chunk.choices and (text := chunk.choices[0].delta.content):
            is_first = False
            yield age_ms(text)


async def streams(server: Placet, count: int) -> dict[str, Any]:
    """So many runs are listened to at once, whose model says one piece after the other. Raises LoadFailed if anything
    of what it said is missing, comes twice or out of order, or has no end.
    """
    memory = resident_bytes(server.pids)
    begin = time.monotonic()
    ages: list[float] = []
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                AsyncClient.connect(f"127.0.0.1:{server.port.number}", token=server.token)
            )
            for _ in range(-(-count // STREAMS_OF_A_CONNECTION))
        ]
        lost = sum(
            await asyncio.gather(*(_stream(clients[number % len(clients)], ages) for number in range(count)))
        )
        grown = resident_bytes(server.pids) - memory
    seconds = time.monotonic() - begin
    if lost:
        raise LoadFailed(f"{lost} pieces of {count * PIECES} were lost")
    return {
        "streams": count,
        "pieces_lost": lost,
        "seconds": round(seconds, 1),
        "pieces_per_second": round(count * PIECES / seconds),
        "late": _spread(ages),
        "memory_grown_mb": round(grown / 2**20, 1),
    }


async def _stream(client: AsyncClient, ages: list[float]) -> int:
    """How many pieces of it did not come in their place. `ages`: how old each was."""
    said = ""
    heard: list[int] = []
    has_ended = False
    async with client.ask_stream(agent_app.PACED, ASKED, timeout=STREAM_SECONDS_MAX) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                *whole, said = (said + event.text).split(";")
                for each in whole:
                    ages.append(age_ms(each))
                    heard.append(int(each[CLOCK_LENGTH:]))
            has_ended = has_ended or isinstance(event, Ended)
    wanted = list(range(PIECES))
    return 0 if heard == wanted and not said and has_ended else max(1, len(set(wanted) - set(heard)))


def _spread(several: Sequence[float]) -> dict[str, float]:
    ordered = sorted(several)
    return {
        "median_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[int(len(ordered) * 0.95)], 1),
    }
