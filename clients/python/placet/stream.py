"""Events of one action as iterators."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import Any, cast

from placet.context import Json
from placet.follow import Follower
from placet.resume import ResumeFollower
from placet.v1.event_pb2 import ActionEvent

CALL_SECONDS = 60.0
READ_SECONDS = 10.0


class Followed:
    """How far a follower has come."""

    def __init__(self, follower: Follower | ResumeFollower) -> None:
        self._follower = follower

    @property
    def action_id(self) -> str:
        """ "" until the first event."""
        return self._follower.action_id

    @property
    def cursor(self) -> str:
        """After the newest event that was delivered: `watch(action_id, after=cursor)` goes on there."""
        return self._follower.cursor

    @property
    def output(self) -> Json:
        """Of an action that succeeded; None before its end."""
        return self._follower.output


class EventStream(Followed):
    """Iterate it; close it, or use it as a context manager, to leave early."""

    def __init__(self, follower: Follower | ResumeFollower, events: Iterator[ActionEvent]) -> None:
        super().__init__(follower)
        self._events = cast("Generator[ActionEvent, None, None]", events)

    def __iter__(self) -> Iterator[ActionEvent]:
        return self

    def __next__(self) -> ActionEvent:
        return next(self._events)

    def close(self) -> None:
        self._events.close()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncEventStream(Followed):
    """Iterate it with `async for`; `aclose()`, or use it as an async context manager, to leave early."""

    def __init__(self, follower: Follower | ResumeFollower, events: AsyncIterator[ActionEvent]) -> None:
        super().__init__(follower)
        self._events = cast("AsyncGenerator[ActionEvent, Any]", events)

    def __aiter__(self) -> AsyncIterator[ActionEvent]:
        return self

    async def __anext__(self) -> ActionEvent:
        return await self._events.__anext__()

    async def aclose(self) -> None:
        await self._events.aclose()

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
