"""One stream's side of an attempt: what is still to be sent on it, and what was asked on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

from placet.connector import frame
from placet.v1 import connector_service_pb2 as pb

FRAMES_WAITING_MAX = 8

Kind = Literal["effect", "checkpoint", "child"]
Numbered = Callable[[int], pb.InvokeResponse]


class Question:
    """Something said that Placet answers: asked on every stream of the attempt, answered on any."""

    def __init__(self, kind: Kind, said: Numbered) -> None:
        self.kind = kind
        self.said = said
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(self, value: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(value)

    def lost(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Outlet:
    """Begins with `accepted`. Numbers are this stream's own. Chunks wait for room; what is asked, and how it ended, do
    not.
    """

    def __init__(self) -> None:
        self._frames: deque[pb.InvokeResponse] = deque([frame.accepted()])
        self._last: pb.InvokeResponse | None = None
        self._chunks = 0
        self._asked: dict[tuple[Kind, int], Question] = {}
        self._counts: dict[Kind, int] = {}
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self.hears = True
        """An answer may still come."""
        self.is_closed = False
        self.is_answered = False
        """The last frame is on its way."""

    async def say(self, said: Numbered) -> None:
        """A chunk or progress; dropped once the stream is closed."""
        while len(self._frames) >= FRAMES_WAITING_MAX and not self.is_closed:
            self._room.clear()
            await self._room.wait()
        if not self.is_closed:
            self._chunks += 1
            self._put(said(self._chunks))

    def ask(self, question: Question) -> None:
        number = self._counts[question.kind] = self._counts.get(question.kind, 0) + 1
        self._asked[question.kind, number] = question
        self._put(question.said(number))

    def answered(self, kind: Kind, number: int, value: Any = None) -> None:
        """An answer to nothing, or a second one, changes nothing."""
        question = self._asked.pop((kind, number), None)
        if question is not None:
            question.answered(value)

    def finish(self, last: pb.InvokeResponse) -> None:
        self._last = last
        self._news.set()

    def close(self) -> None:
        self.hears, self.is_closed = False, True
        self._room.set()
        self._news.set()

    async def frames(self) -> AsyncIterator[pb.InvokeResponse]:
        """Ends after the last frame, or once the outlet is closed."""
        while not self.is_closed:
            while self._frames:
                first = self._frames.popleft()
                self._room.set()
                yield first
            if self._last is not None:
                self.is_answered = True
                yield self._last
                return
            self._news.clear()
            await self._news.wait()

    def _put(self, said: pb.InvokeResponse) -> None:
        self._frames.append(said)
        self._news.set()
