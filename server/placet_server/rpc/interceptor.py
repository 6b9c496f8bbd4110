"""The order in which every call passes the layers: `_answering`. Each layer is a step from a file of its own.

A call is one coroutine, as whatever it waits for resumes through every frame in between, and most layers never wait.
The server gets one generic handler that looks a method up in a dict: no interceptor runs per call, and no closure or
task is made. Messages are parsed and written here rather than by grpc, whose own failures to do so carry no ErrorInfo.
What the transport itself answers, before or instead of a layer, carries none either: a message above the receive limit
(RESOURCE_EXHAUSTED), metadata above its limit (RESOURCE_EXHAUSTED), a call without a message, a deadline that passed on
the way (DEADLINE_EXCEEDED), the end of a shutdown's grace (UNAVAILABLE).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty

from placet_server.model.errors import UnknownMethod
from placet_server.rpc.call import Answer, Load, Method, Rpc, stream
from placet_server.rpc.error_mapping import ErrorMapping, abort
from placet_server.rpc.identity.layer import Identity
from placet_server.rpc.limit import Limiter
from placet_server.rpc.observation import Observed
from placet_server.rpc.permission import permit
from placet_server.rpc.validation import Validation

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the layers need."""

    telemetry: Callable[[Method], Observed]
    limiter: Limiter
    identity: Identity
    validation: Validation


class Interceptor(grpc.GenericRpcHandler):
    """Answers every method of the contract, and all others with UNKNOWN_METHOD: register it last."""

    def __init__(self, methods: Sequence[Method], parts: Parts) -> None:
        self._handlers = {method.path: _handler(method, _answering(method, parts)) for method in methods}
        self._unknown = _refusing(parts)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        path = handler_call_details.method
        return self._handlers.get(path) or _unknown_handler(path, self._unknown)


def _answering(method: Method, parts: Parts) -> Answer:
    """The layers in their order. Everything but the call itself is looked up here, once."""
    observed = parts.telemetry(method)
    mapping = ErrorMapping(method)
    gauge = parts.limiter.gauge(method)
    identity = parts.identity
    check = parts.validation.check_of(method)
    handler, scope, streaming = method.handler, method.scope, method.streaming

    async def answer(raw: bytes, context: Context, rpc: Rpc[Any] | None = None, /) -> bytes | None:
        rpc = rpc or Rpc(method, context, raw)
        started = observed.begin(rpc)
        try:
            try:
                gauge.enter()
                tenant = ""
                try:
                    caller = rpc.caller = identity.known(rpc) or await identity.establish(rpc)
                    permit(caller, scope)
                    tenant = gauge.enter_tenant(caller.tenant)
                    check(rpc)
                    if streaming:
                        await stream(rpc)
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

    return observed.traced(answer)


def _refusing(parts: Parts) -> Answer:
    """Of methods that nobody knows the layers have nothing to ask."""
    observed = parts.telemetry(_UNKNOWN)

    async def answer(raw: bytes, context: Context, rpc: Rpc[Any] | None = None, /) -> None:
        rpc = rpc or Rpc(_UNKNOWN, context, raw)
        started = observed.begin(rpc)
        try:
            await _refuse(rpc)
        finally:
            observed.end(rpc, started)

    return observed.traced(answer)


def _handler(method: Method, answer: Answer) -> grpc.RpcMethodHandler[Any, Any]:
    # Without serializers both sides are bytes.
    if method.streaming:
        return grpc.unary_stream_rpc_method_handler(answer)
    return grpc.unary_unary_rpc_method_handler(answer)


def _unknown_handler(path: str, answer: Answer) -> grpc.RpcMethodHandler[Any, Any]:
    """Reads nothing, so it answers calls of every shape."""

    async def handle(_: Any, context: Context) -> None:
        await answer(path.encode(), context)

    return grpc.stream_stream_rpc_method_handler(handle)


async def _refuse(rpc: Rpc[Any]) -> None:
    await abort(rpc, UnknownMethod(method=rpc.raw.decode()))


# One for all of them, so that invented names do not become metric labels.
_UNKNOWN = Method(
    path="unknown",
    service="unknown",
    name="unknown",
    request_type=Empty,
    streaming=True,
    scope=None,
    load=Load.CALL,
    handler=_refuse,
)
