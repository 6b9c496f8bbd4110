"""One RPC on its way through the layers, and what a layer is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar, cast

import grpc
from google.protobuf.message import Message

from placet_server.model.caller import Caller
from placet_server.telemetry.tracing import incoming_trace

Request = TypeVar("Request", bound=Message)
Item = TypeVar("Item")


class Rpc(Generic[Request]):
    """What the layers learn about one call. `raw` is what came, `request` what the validation layer made of it.

    `caller` is set by the identity layer, `action_id` by the handler, `code` and `reason` by the error mapping.
    """

    __slots__ = (
        "_trace",
        "action_id",
        "announcement",
        "caller",
        "code",
        "context",
        "finished",
        "metadata",
        "method",
        "raw",
        "reason",
        "request",
        "trace_id",
    )

    # Set by the layers before anybody who may read them.
    caller: Caller
    request: Request

    def __init__(self, method: Method, context: grpc.aio.ServicerContext[Any, Any], raw: bytes) -> None:
        self.method = method
        self.context = context
        self.raw = raw
        self.metadata: Any = context.invocation_metadata()
        self.action_id = ""
        self.trace_id = ""
        self._trace: dict[str, str] | None = None
        self.reason = ""
        self.code = grpc.StatusCode.OK
        self.finished = False
        # The early initial metadata, while it is being sent: nothing else may be sent meanwhile.
        self.announcement: asyncio.Task[None] | None = None

    @property
    def trace(self) -> dict[str, str]:
        """W3C headers of the call's span if it is sampled, otherwise those that came with it."""
        if self._trace is None:
            self._trace = incoming_trace(self.metadata)
        return self._trace

    def headers(self, name: str) -> list[str]:
        """All values of one metadata key, which is lower case and not binary."""
        return [value for key, value in self.metadata if key == name]


class Load(Enum):
    """Which limit a call counts against: work, or waiting for somebody else's."""

    CALL = auto()
    WATCH = auto()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Method:
    """One RPC of the contract and who answers it.

    `handler` takes the Rpc; it is a coroutine function that returns the response, or an async generator of them.
    `scope` is None where being known is enough.
    """

    path: str
    service: str
    name: str
    request_type: type[Message]
    streaming: bool
    scope: str | None
    load: Load
    handler: Callable[[Rpc[Any]], Any]


# Returns the response's bytes; None when the responses were streamed.
Next = Callable[[Rpc[Any]], Awaitable[bytes | None]]
# Called once per method, at start.
Layer = Callable[[Method, Next], Next]


class CallerGone(Exception):
    """A response could not be written: the stream is closed on the other side."""


def closing(items: AsyncIterator[Item]) -> AbstractAsyncContextManager[AsyncIterator[Item]]:
    """Ends an async generator with the block, rather than whenever it is collected."""
    return aclosing(cast("AsyncGenerator[Item, None]", items))


def innermost(method: Method) -> Next:
    """The end of the chain: the handler itself, and the response as bytes."""
    return _streamed(method) if method.streaming else _answered(method)


def _answered(method: Method) -> Next:
    handler = method.handler

    async def answer(rpc: Rpc[Any]) -> bytes:
        response: Message = await handler(rpc)
        return response.SerializeToString()

    return answer


def _streamed(method: Method) -> Next:
    handler = method.handler

    async def stream(rpc: Rpc[Any]) -> None:
        made: AsyncIterator[Message] = handler(rpc)
        async with closing(made) as responses:
            async for response in responses:
                try:
                    await rpc.context.write(response.SerializeToString())
                except grpc.aio.InternalError as error:
                    raise CallerGone from error

    return stream
