"""What one request of a turn sends and gets by HTTP: whether anything was sent at all, and no more read than an answer
can be. A provider, or whoever stands where one should be, may send lines and errors without end; the libraries read
them all.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2

from placet_server.harness.provider.answer import BeforeSent, TurnFailure, at_once
from placet_server.model.entry import TurnProblem

BYTES_MAX = 16 * 2**20
# Each token may come in an event of its own.
BYTES_PER_TOKEN_MAX = 512
_PIECE_BYTES = 64 * 1024
_DECODED = ("gzip", "x-gzip", "deflate")


@dataclass(slots=True, kw_only=True)
class Exchange:
    """`problem`: why it was hung up; empty: it was not. `is_held`: it was not let go before its time was over."""

    bytes_max: int = BYTES_MAX
    before_sent: BeforeSent = at_once
    is_begun: bool = False
    is_held: bool = False
    problem: str = ""
    _refused: BaseException | None = None

    async def let_go(self) -> None:
        """It may be sent. Raises HungUp: see `check`."""
        self.is_held = True
        try:
            await self.before_sent()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Clients would make something else of it.
            self.is_held, self._refused = False, error
            raise HungUp("not to be sent") from None
        self.is_held = False

    def check(self) -> None:
        """Raises what `before_sent` has raised, and TurnFailure if it was hung up, whatever the client made of that."""
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused from None
        if self.problem:
            raise TurnFailure(TurnProblem.INVALID, charged=True, detail=self.problem) from None


_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


class HungUp(Exception):
    """The rest of a response is not read."""


@contextmanager
def exchange(max_tokens: int, before_sent: BeforeSent = at_once) -> Iterator[Exchange]:
    """Of all that is sent meanwhile. `max_tokens`: of the answer."""
    made = Exchange(bytes_max=BYTES_MAX + max_tokens * BYTES_PER_TOKEN_MAX, before_sent=before_sent)
    token = _current.set(made)
    try:
        yield made
    finally:
        _current.reset(token)


def begin(**_: Any) -> None:
    """Something is about to be sent, by a client that is none of ours."""
    if (under_way := _current.get()) is not None:
        under_way.is_begun = True


class Client(httpx2.AsyncClient):
    """Reads of a response what its exchange allows, decoded here, as a few bytes may stand for very many."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        under_way = _current.get() or Exchange()
        await under_way.let_go()
        under_way.is_begun = True
        response = await super().send(request, stream=True, **options)
        try:
            response.stream = _Bounded(response, under_way)
            if not stream:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, under_way: Exchange) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._under_way = under_way
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in _DECODED else None
        if self._decoder is None and encoding not in ("", "identity"):
            raise self._hung_up(f"the response is encoded as {encoding}, which was not asked for")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._under_way.bytes_max
        async for chunk in self._stream:
            for piece in self._decoded(chunk):
                left -= len(piece)
                if left < 0:
                    raise self._hung_up(f"the response has more than {self._under_way.bytes_max} bytes")
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _decoded(self, chunk: bytes) -> Iterator[bytes]:
        if self._decoder is None:
            yield chunk
            return
        while chunk:
            if piece := self._decoder.decompress(chunk, _PIECE_BYTES):
                yield piece
            chunk = self._decoder.unconsumed_tail

    def _hung_up(self, problem: str) -> HungUp:
        self._under_way.problem = problem
        return HungUp(problem)
