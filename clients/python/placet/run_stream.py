"""The run of an agent while it runs: what its model says, what it calls, what it waits for.

with client.ask_stream("shop.helper", "Where is order A-1001?") as run:
    for event in run:
        match event:
            case TextDelta(text=text):
                print(text, end="")
            case ToolStarted(tool=tool):
                print(f"[{tool}]")
    reply = run.reply()
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import Any, cast

from placet.ask_requests import PreparedAsk, Reply
from placet.errors import PlacetError, TransportError
from placet.requests import OnWait
from placet.resume import ResumeFollower
from placet.retry import Deadline, RetryPolicy
from placet.run_event import RunEvent, run_event
from placet.steps import Send, Steps
from placet.stream import READ_SECONDS, Followed
from placet.v1 import event_pb2, runtime_service_pb2


class RunFollower(ResumeFollower):
    """Asks, or joins a run by its id, and goes on after the newest cursor. A stream that broke before its first event
    is sent again as it was, under its key.
    """

    def __init__(
        self,
        deadline: Deadline,
        policy: RetryPolicy,
        *,
        prepared: PreparedAsk | None = None,
        action_id: str = "",
        cursor: str = "",
        on_wait: OnWait | None = None,
    ) -> None:
        super().__init__(deadline, policy, action_id=action_id, cursor=cursor, on_wait=on_wait)
        self._prepared = prepared

    def opening(self) -> Send:
        joining = super().opening()
        if self._prepared is None or self.action_id:
            return joining
        request = runtime_service_pb2.AskStreamRequest(ask=self._prepared.ask_request())
        return Send("AskStream", request, joining.seconds, self._prepared.metadata)

    def take(self, event: event_pb2.ActionEvent) -> event_pb2.ActionEvent | None:
        self.action_id = self.action_id or event.action_id
        return super().take(event)

    def ended(self, error: PlacetError | None) -> Steps[bool]:
        if isinstance(error, TransportError):
            error.action_id = error.action_id or self.action_id
            if not self.action_id and self._prepared is not None and not self._prepared.key:
                # Nobody can tell whether it was begun.
                raise error
        return (yield from super().ended(error))


class RunStream(Followed):
    """Iterate it; close it, or use it as a context manager, to leave early: the run goes on."""

    def __init__(
        self,
        follower: RunFollower,
        events: Iterator[event_pb2.ActionEvent],
        reply: Callable[[float], Reply],
        cancel: Callable[[str], None],
    ) -> None:
        super().__init__(follower)
        self._events = cast("Generator[event_pb2.ActionEvent, None, None]", events)
        self._reply = reply
        self._cancel = cancel

    def __iter__(self) -> Iterator[RunEvent]:
        return self

    def __next__(self) -> RunEvent:
        return run_event(next(self._events))

    def reply(self, *, timeout: float = READ_SECONDS) -> Reply:
        """The answer, once all events are read; those that are left are read first. Whether the key was known it
        does not say. Raises what `ask` would.
        """
        for _ in self:
            pass
        return self._reply(timeout)

    def cancel(self, reason: str = "") -> None:
        """Asks the run to stop, once there is one; its end is still told."""
        self._cancel(reason)

    def close(self) -> None:
        self._events.close()

    def __enter__(self) -> RunStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncRunStream(Followed):
    """Iterate it with `async for`; `aclose()`, or use it as an async context manager, to leave early: the run goes
    on.
    """

    def __init__(
        self,
        follower: RunFollower,
        events: AsyncIterator[event_pb2.ActionEvent],
        reply: Callable[[float], Awaitable[Reply]],
        cancel: Callable[[str], Awaitable[None]],
    ) -> None:
        super().__init__(follower)
        self._events = cast("AsyncGenerator[event_pb2.ActionEvent, Any]", events)
        self._reply = reply
        self._cancel = cancel

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self

    async def __anext__(self) -> RunEvent:
        return run_event(await self._events.__anext__())

    async def reply(self, *, timeout: float = READ_SECONDS) -> Reply:
        """The answer, once all events are read; those that are left are read first. Whether the key was known it
        does not say. Raises what `ask` would.
        """
        async for _ in self:
            pass
        return await self._reply(timeout)

    async def cancel(self, reason: str = "") -> None:
        """Asks the run to stop, once there is one; its end is still told."""
        await self._cancel(reason)

    async def aclose(self) -> None:
        await self._events.aclose()

    async def __aenter__(self) -> AsyncRunStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
