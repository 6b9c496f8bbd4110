"""Follows the feed of a tenant over as many streams as it takes. Pure.

Every event and every checkpoint carries the cursor after it, so a stream that broke, or that a server ended because it
leaves or cannot keep up, goes on after the newest: nothing is lost, nothing comes twice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from placet.errors import PendingError, PlacetError, TransportError
from placet.follow import WATCH_SECONDS_MAX
from placet.retry import Deadline, RetryPolicy
from placet.steps import SEND_SECONDS_MIN, Pause, Send, Steps
from placet.v1 import approval_service_pb2, event_pb2, runtime_service_pb2

TakenT = TypeVar("TakenT")


class FeedFollower:
    """One use, as `placet.follow.Follower`. The feed of a tenant has no end: the caller leaves, or the deadline comes.
    That of a family ends with its root."""

    enough = False

    def __init__(
        self,
        deadline: Deadline,
        policy: RetryPolicy,
        request: runtime_service_pb2.WatchEventsRequest
        | runtime_service_pb2.WatchActionRequest
        | approval_service_pb2.WatchApprovalsRequest,
    ) -> None:
        self.cursor = request.after_cursor
        self._deadline = deadline
        self._policy = policy
        self._request = request
        self._has_end = isinstance(request, runtime_service_pb2.WatchActionRequest)
        self._failures = 0

    def opening(self) -> Send:
        """The stream to open next."""
        self._request.after_cursor = self.cursor
        seconds = max(self._deadline.seconds_left(), SEND_SECONDS_MIN)
        method = type(self._request).__name__.removesuffix("Request")
        return Send(method, self._request, min(seconds, WATCH_SECONDS_MAX))

    def take(self, event: event_pb2.ActionEvent) -> event_pb2.ActionEvent | None:
        """The event, or None for a checkpoint."""
        self._failures = 0
        self.cursor = event.cursor
        return event if event.type or event.WhichOneof("event") else None

    def ended(self, error: PlacetError | None) -> Steps[bool]:
        """After a stream: True once the deadline is over, False when another is to be opened. Raises what asking again
        does not change."""
        if error is None and self._has_end:
            return True
        left = self._deadline.seconds_left()
        renewed = error is None or isinstance(error, PendingError) or _is_late(error)
        if renewed and left <= SEND_SECONDS_MIN:
            return True
        self._failures += 1
        pause = 0.0 if renewed and self._failures == 1 else self._policy.backoff_seconds(self._failures)
        if error is not None and not renewed:
            wanted = self._policy.pause_seconds(error, self._failures, left)
            if wanted is None:
                raise error
            pause = wanted
        if pause > 0:
            yield Pause(pause)
        return False


def _is_late(error: PlacetError) -> bool:
    """The stream's own time was over: it is renewed now and then, so that a dead connection is noticed."""
    return isinstance(error, TransportError) and error.code == "DEADLINE_EXCEEDED"


class _Standing:
    def __init__(self, follower: FeedFollower) -> None:
        self._follower = follower

    @property
    def cursor(self) -> str:
        """Of the newest event, or of a checkpoint after it: the same watch after it goes on there, with the same
        filter."""
        return self._follower.cursor


class FeedStream(_Standing, Generic[TakenT]):
    """Iterate it; close it, or use it as a context manager, to leave."""

    def __init__(self, follower: FeedFollower, taken: Iterator[TakenT]) -> None:
        super().__init__(follower)
        self._taken = cast("Generator[TakenT, None, None]", taken)

    def __iter__(self) -> Iterator[TakenT]:
        return self

    def __next__(self) -> TakenT:
        return next(self._taken)

    def close(self) -> None:
        self._taken.close()

    def __enter__(self) -> FeedStream[TakenT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncFeedStream(_Standing, Generic[TakenT]):
    """Iterate it with `async for`; `aclose()`, or use it as an async context manager, to leave."""

    def __init__(self, follower: FeedFollower, taken: AsyncIterator[TakenT]) -> None:
        super().__init__(follower)
        self._taken = cast("AsyncGenerator[TakenT, Any]", taken)

    def __aiter__(self) -> AsyncIterator[TakenT]:
        return self

    async def __anext__(self) -> TakenT:
        return await self._taken.__anext__()

    async def aclose(self) -> None:
        await self._taken.aclose()

    async def __aenter__(self) -> AsyncFeedStream[TakenT]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
