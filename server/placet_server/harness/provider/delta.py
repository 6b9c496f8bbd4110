"""What a model says, in pieces worth storing: the first at once, and then no piece waits longer than 50 ms or grows
beyond 4 KiB, also if the model falls silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from placet_server.harness.provider.answer import Delta, OnDelta

PIECE_SECONDS_MAX = 0.05
PIECE_BYTES_MAX = 4096


class Deltas:
    """`add` waits while what was said before is not taken: who cannot keep up holds the model back."""

    def __init__(self, send: OnDelta) -> None:
        self._send = send
        self._held: list[Delta] = []
        self._bytes = 0
        self._is_first = True
        self._begun = asyncio.Event()
        self._sending = asyncio.Lock()

    async def add(self, delta: Delta) -> None:
        if not delta.text:
            return
        if self._held and self._held[-1].kind != delta.kind:
            await self.flush()
        # Half a character may come, and is no text; what is kept of the answer is looked at by itself.
        text = delta.text.encode(errors="replace")
        self._held.append(Delta(delta.kind, text.decode()))
        self._bytes += len(text)
        if self._is_first or self._bytes >= PIECE_BYTES_MAX:
            self._is_first = False
            await self.flush()
        else:
            self._begun.set()
        # Many may have come at once. Whoever is to be told the first does not wait until the last was read.
        await asyncio.sleep(0)

    async def flush(self) -> None:
        """Also waits for a piece that is being sent: pieces keep their order."""
        async with self._sending:
            held, self._held, self._bytes = self._held, [], 0
            self._begun.clear()
            if held:
                await self._send(Delta(held[0].kind, "".join(delta.text for delta in held)))

    async def flush_in_time(self) -> None:
        """For ever."""
        while True:
            await self._begun.wait()
            await asyncio.sleep(PIECE_SECONDS_MAX)
            await self.flush()


@asynccontextmanager
async def pieces(send: OnDelta) -> AsyncIterator[Deltas]:
    """What is held at the end is sent, if nothing went wrong. Raises what `send` raises, wherever it was called."""
    deltas = Deltas(send)
    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(deltas.flush_in_time())
            # What it notes of a failure would hold this frame, which must not hold it.
            del group
            try:
                yield deltas
                await deltas.flush()
            finally:
                timer.cancel()
    except BaseExceptionGroup as failures:
        # The frame that made it holds it, too.
        failures.__traceback__ = None
        # The first is what went wrong; what it stopped says nothing more.
        failure = failures.exceptions[0]
    if failure is not None:
        try:
            raise failure
        finally:
            del failure
