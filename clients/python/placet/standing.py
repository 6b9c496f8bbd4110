"""`Context` and `SyncContext` over whatever runs the attempt: the server, or a connector."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from placet.context import Context, Json, Standing, SyncContext
from placet.failure import Cancelled

T = TypeVar("T")


class AttemptLost(Cancelled):
    """The attempt was given up meanwhile: whatever it does from here no longer counts, so it must stop."""


class Attempt(Protocol):
    """Belongs to an event loop, and is used there alone."""

    deadline: float
    """By the loop's clock."""

    def describe(self, context: Standing) -> None:
        """Says what the context says of its attempt."""

    def is_stopped(self) -> bool: ...

    async def wait_stopped(self) -> None: ...

    async def effect(self) -> str: ...

    async def checkpoint(self, operation: str, cursor: Json) -> None: ...

    async def chunk(self, data: Json | bytes) -> None: ...

    async def progress(self, message: str, fraction: float | None) -> None: ...

    async def call(
        self,
        step: str,
        capability: str,
        value: Json,
        version: str,
        timeout_seconds: float | None,
        scopes: frozenset[str] | None,
    ) -> Json: ...


class AsyncStanding(Context):
    """For async handlers, on the attempt's event loop."""

    def __init__(self, attempt: Attempt) -> None:
        attempt.describe(self)
        self._attempt = attempt
        self._loop = asyncio.get_running_loop()

    @property
    def attempt_stood_on(self) -> Attempt:
        """For who runs attempts, not for handlers."""
        return self._attempt

    @property
    def cancelled(self) -> bool:
        return self._attempt.is_stopped()

    def time_left(self) -> float:
        return max(0.0, self._attempt.deadline - self._loop.time())

    async def effect(self) -> str:
        return await self._attempt.effect()

    async def checkpoint(self, operation: str, cursor: Json = None) -> None:
        await self._attempt.checkpoint(operation, cursor)

    async def chunk(self, data: Json | bytes) -> None:
        await self._attempt.chunk(data)

    async def progress(self, message: str, fraction: float | None = None) -> None:
        await self._attempt.progress(message, fraction)

    async def call(
        self,
        step: str,
        capability: str,
        input: Json = None,
        *,
        version: str = "",
        timeout: timedelta | float | None = None,
        scopes: Iterable[str] | None = None,
    ) -> Json:
        return await self._attempt.call(step, capability, input, version, _seconds(timeout), _scopes(scopes))

    async def wait_cancelled(self) -> None:
        await self._attempt.wait_stopped()


class ThreadStanding(SyncContext):
    """For plain handlers, in a thread; each call goes through the event loop and back."""

    def __init__(self, attempt: Attempt) -> None:
        attempt.describe(self)
        self._attempt = attempt
        self._loop = asyncio.get_running_loop()
        self.stopped = threading.Event()

    @property
    def cancelled(self) -> bool:
        return self.stopped.is_set()

    def time_left(self) -> float:
        return max(0.0, self._attempt.deadline - self._loop.time())

    def effect(self) -> str:
        return self._there_and_back(self._attempt.effect())

    def checkpoint(self, operation: str, cursor: Json = None) -> None:
        self._there_and_back(self._attempt.checkpoint(operation, cursor))

    def chunk(self, data: Json | bytes) -> None:
        self._there_and_back(self._attempt.chunk(data))

    def progress(self, message: str, fraction: float | None = None) -> None:
        self._there_and_back(self._attempt.progress(message, fraction))

    def call(
        self,
        step: str,
        capability: str,
        input: Json = None,
        *,
        version: str = "",
        timeout: timedelta | float | None = None,
        scopes: Iterable[str] | None = None,
    ) -> Json:
        seconds, some = _seconds(timeout), _scopes(scopes)
        return self._there_and_back(self._attempt.call(step, capability, input, version, seconds, some))

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        return self.stopped.wait(timeout)

    def raise_if_cancelled(self) -> None:
        if self.stopped.is_set():
            raise Cancelled

    def _there_and_back(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except concurrent.futures.CancelledError:
            raise Cancelled from None


def guarded(function: Callable[[], T]) -> Callable[[], T]:
    """For a thread: a future cannot carry StopIteration, it would never be done; and GeneratorExit would close who
    waits.
    """

    def call() -> T:
        try:
            return function()
        except (StopIteration, GeneratorExit) as stop:
            raise RuntimeError(f"a handler raised {type(stop).__name__}") from stop

    return call


def _seconds(timeout: timedelta | float | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


def _scopes(scopes: Iterable[str] | None) -> frozenset[str] | None:
    if isinstance(scopes, str):
        raise ValueError(f"scopes are several, as in [{scopes!r}]")
    return None if scopes is None else frozenset(scopes)
