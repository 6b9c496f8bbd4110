"""One RPC on its way through the layers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar, cast

import grpc
from google.protobuf.message import Message

from placet_server.model.caller import Caller
from placet_server.model.ending_errors import DeadlineExceeded
from placet_server.model.errors import READER_STALLED, Overloaded
from placet_server.telemetry.tracing import incoming_trace

Context = grpc.aio.ServicerContext[Any, Any]
# A name in lower case and its value: bytes if the name ends in -bin, which none does that is read here.
Header = tuple[str, Any]
Request = TypeVar("Request", bound=Message)
Item = TypeVar("Item")


# To read a member of an enum from its class costs a call more than all of what is set below.
_OK = grpc.StatusCode.OK


class Rpc(Generic[Request]):
    """What the layers learn about one call.

    `context` is set when its message is there, `caller` by the identity, `request` by the validation, `action_id` by
    the handler, `code` and `reason` by the error mapping. `authorizations`, `message_ids` and `message_times` are all
    values of these headers.
    """

    __slots__ = (
        "_trace",
        "_traceparent",
        "_tracestate",
        "action_id",
        "announcement",
        "authorizations",
        "caller",
        "code",
        "context",
        "finished",
        "message_ids",
        "message_times",
        "method",
        "reason",
        "request",
        "trace_id",
    )

    # Set by the layers before anybody who may read them.
    context: Context
    caller: Caller
    request: Request

    def __init__(self, method: Method, metadata: Iterable[Header]) -> None:
        self.method = method
        self.action_id = ""
        self.trace_id = ""
        self._trace: dict[str, str] | None = None
        self.reason = ""
        self.code = _OK
        self.finished = False
        # The early initial metadata, while it is being sent: nothing else may be sent meanwhile.
        self.announcement: asyncio.Task[None] | None = None
        # In one pass, and by index, which is quicker for named tuples than to unpack them.
        authorizations: tuple[str, ...] = ()
        self.message_ids: tuple[str, ...] = ()
        self.message_times: tuple[str, ...] = ()
        parent = state = None
        for header in metadata:
            name = header[0]
            if name == "authorization":
                authorizations += (header[1],)
            elif name == "traceparent":
                parent = header[1]
            elif name == "tracestate":
                state = header[1]
            elif name == "placet-message-id":
                self.message_ids += (header[1],)
            elif name == "placet-message-time":
                self.message_times += (header[1],)
        self.authorizations = authorizations
        self._traceparent = parent
        self._tracestate = state

    @property
    def trace(self) -> dict[str, str]:
        """W3C headers of the call's span if it is sampled, otherwise those that came with it."""
        trace = self._trace
        if trace is None:
            trace = self._trace = incoming_trace(self._traceparent, self._tracestate)
        return trace

    def headers(self, name: str) -> list[str]:
        """All values of one metadata key, which is lower case and not binary."""
        metadata: Any = self.context.invocation_metadata()
        return [value for key, value in metadata if key == name]


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


# Takes a call and its message through all layers. Returns the response's bytes; None when responses were streamed.
Answer = Callable[[Rpc[Any], bytes, Context], Coroutine[Any, Any, bytes | None]]


class CallerGone(Exception):
    """A response could not be written: the stream is closed on the other side."""


def closing(items: AsyncIterator[Item]) -> AbstractAsyncContextManager[AsyncIterator[Item]]:
    """Ends an async generator with the block, rather than whenever it is collected."""
    return aclosing(cast("AsyncGenerator[Item, None]", items))


async def stream(rpc: Rpc[Any], stall_seconds: float) -> None:
    """Writes what the handler of a streaming method yields: the next once the reader took the last, so that a slow one
    holds up nobody but itself. Raises CallerGone; Overloaded, if it takes nothing for so long."""
    made: AsyncIterator[Message] = rpc.method.handler(rpc)
    async with closing(made) as responses:
        async for response in responses:
            try:
                async with asyncio.timeout(stall_seconds):
                    await rpc.context.write(response.SerializeToString())
            except TimeoutError:
                raise Overloaded(limit=READER_STALLED, limit_max=math.ceil(stall_seconds)) from None
            except grpc.aio.InternalError as error:
                raise CallerGone from error


def time_left(rpc: Rpc[Any]) -> float | None:
    """Seconds until the call's deadline; None without one. Raises DeadlineExceeded when it has passed."""
    left: float | None = rpc.context.time_remaining()
    if left is not None and left <= 0:
        raise DeadlineExceeded()
    return left
