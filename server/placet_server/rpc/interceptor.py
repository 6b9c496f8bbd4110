"""The order in which every call passes the layers: `_answering`. Each layer is a step from a file of its own.

A call is one coroutine, as whatever it waits for resumes through every frame in between, and most layers never wait.
The server gets one generic handler that looks a method up in a dict: no interceptor runs per call, and no task is
made. The headers are read from what it is asked with, because a call's context would make them anew. Messages are
parsed and written here rather than by grpc, whose own failures to do so carry no ErrorInfo.
What the transport itself answers, before or instead of a layer, carries none either: a message above the receive limit
(RESOURCE_EXHAUSTED), metadata above its limit (RESOURCE_EXHAUSTED), a call without a message, a deadline that passed on
the way (DEADLINE_EXCEEDED), the end of a shutdown's grace (UNAVAILABLE), a call that comes between the begin of a
shutdown and the moment in which its client hears of it (CANCELLED: the library gives it to no handler).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.empty_pb2 import Empty

from placet_server.model.errors import UnknownMethod
from placet_server.rpc.call import Answer, Context, Load, Method, Rpc, stream
from placet_server.rpc.error_mapping import ErrorMapping, abort
from placet_server.rpc.identity.layer import Identity
from placet_server.rpc.limit import Limiter
from placet_server.rpc.observation import Observed
from placet_server.rpc.permission import permit
from placet_server.rpc.validation import Validation

if TYPE_CHECKING:
    from placet_server.rpc.tracing import Traced


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the layers need. `reader_stall_seconds`: a reader of a stream that takes nothing for so long is let go."""

    telemetry: Callable[[Method], Observed]
    limiter: Limiter
    identity: Identity
    validation: Validation
    reader_stall_seconds: float = 60.0


class Interceptor(grpc.GenericRpcHandler):
    """Answers every method of the contract, and all others with UNKNOWN_METHOD: register it last."""

    def __init__(self, methods: Sequence[Method], parts: Parts) -> None:
        self._served = {method.path: _answering(method, parts) for method in methods}
        self._unknown = _refusing(parts)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        path = handler_call_details.method
        served = self._served.get(path)
        if served is None:
            return self._refusal(path, handler_call_details)
        rpc: Rpc[Any] = Rpc(served.method, handler_call_details.invocation_metadata)
        return served.handler(partial(served.answer_for(rpc), rpc))

    def _refusal(self, path: str, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Reads nothing, so it answers calls of every shape."""
        rpc: Rpc[Any] = Rpc(_UNKNOWN, details.invocation_metadata)
        answer = self._unknown.answer_for(rpc)

        async def handle(_: Any, context: Context) -> None:
            await answer(rpc, path.encode(), context)

        return grpc.stream_stream_rpc_method_handler(handle)


def _answering(method: Method, parts: Parts) -> _Served:
    """The layers in their order. Everything but the call itself is looked up here, once."""
    observed = parts.telemetry(method)
    mapping = ErrorMapping(method)
    gauge = parts.limiter.gauge(method)
    identity = parts.identity
    check = parts.validation.check_of(method)
    handler, scope, streaming = method.handler, method.scope, method.streaming

    async def answer(rpc: Rpc[Any], raw: bytes, context: Context) -> bytes | None:
        rpc.context = context
        started = observed.begin(rpc)
        try:
            try:
                gauge.enter()
                tenant = ""
                try:
                    caller = rpc.caller = identity.known(rpc) or await identity.establish(rpc)
                    permit(caller, scope)
                    tenant = gauge.enter_tenant(caller.tenant)
                    check(rpc, raw)
                    if streaming:
                        await stream(rpc, parts.reader_stall_seconds)
                        response = None
                    else:
                        response = (await handler(rpc)).SerializeToString()
                finally:
                    rpc.finished = True
                    gauge.leave(tenant)
                if rpc.announcement is not None:
                    await rpc.announcement
                return response
            except (Exception, asyncio.CancelledError) as error:
                failure = mapping.failure_of(error, rpc)
            await abort(rpc, failure)
            return None
        finally:
            observed.end(rpc, started)

    return _Served(method, answer, observed.traced(answer))


def _refusing(parts: Parts) -> _Served:
    """Of methods that nobody knows the layers have nothing to ask."""
    observed = parts.telemetry(_UNKNOWN)

    async def answer(rpc: Rpc[Any], raw: bytes, context: Context) -> None:
        rpc.context = context
        started = observed.begin(rpc)
        try:
            await abort(rpc, UnknownMethod(method=raw.decode()))
        finally:
            observed.end(rpc, started)

    return _Served(_UNKNOWN, answer, observed.traced(answer))


class _Served:
    """A method and who takes its calls through the layers."""

    def __init__(self, method: Method, answer: Answer, traced: Traced | None) -> None:
        self.method = method
        self.handler = _Streaming if method.streaming else _Unary
        self._answer = answer
        self._traced = traced

    def answer_for(self, rpc: Rpc[Any]) -> Answer:
        """Within a span if the call is sampled."""
        traced = self._traced
        return self._answer if traced is None or not traced.wants(rpc) else traced.answer


class _Unary:
    """A grpc.RpcMethodHandler of one call, so no more than grpc reads. Without serializers both sides are bytes."""

    __slots__ = ("unary_unary",)

    request_streaming = False
    response_streaming = False
    request_deserializer = None
    response_serializer = None

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.unary_unary = answer


class _Streaming:
    """The same with a stream of responses."""

    __slots__ = ("unary_stream",)

    request_streaming = False
    response_streaming = True
    request_deserializer = None
    response_serializer = None

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.unary_stream = answer


async def _nobody(_: Rpc[Any]) -> None:
    """Is never asked."""


# One for all of them, so that invented names do not become metric labels.
_UNKNOWN = Method(
    path="unknown",
    service="unknown",
    name="unknown",
    request_type=Empty,
    streaming=True,
    scope=None,
    load=Load.CALL,
    handler=_nobody,
)
