"""The order in which every call passes the layers, composed once per method at start.

The server gets one generic handler that looks a method up in a dict: no interceptor runs per call, and no closure or
task is made. Messages are parsed and written here rather than by grpc, whose own failures to do so carry no ErrorInfo.
What the transport itself answers, before or instead of a layer, carries none either: a message above the receive limit
(RESOURCE_EXHAUSTED), metadata above its limit (RESOURCE_EXHAUSTED), a call without a message, a deadline that passed on
the way (DEADLINE_EXCEEDED), the end of a shutdown's grace (UNAVAILABLE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty

from placet_server.model.errors import UnknownMethod
from placet_server.rpc import error_mapping, permission
from placet_server.rpc.call import Layer, Load, Method, Next, Rpc, innermost
from placet_server.rpc.identity.layer import Identity
from placet_server.rpc.limit import Limiter
from placet_server.rpc.validation import Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the layers need."""

    telemetry: Layer
    limiter: Limiter
    identity: Identity
    validation: Validation


def order(parts: Parts) -> list[Layer]:
    """Outermost first."""
    return [
        parts.telemetry,
        error_mapping.layer,
        parts.limiter.layer,
        parts.identity.layer,
        permission.layer,
        parts.limiter.tenant_layer,
        parts.validation.layer,
    ]


class Interceptor(grpc.GenericRpcHandler):
    """Answers every method of the contract, and all others with UNKNOWN_METHOD: register it last."""

    def __init__(self, methods: Sequence[Method], parts: Parts) -> None:
        layers = order(parts)
        self._handlers = {
            method.path: _handler(method, compose(method, layers, innermost(method))) for method in methods
        }
        self._unknown = compose(_UNKNOWN, [parts.telemetry, error_mapping.layer], _refuse)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        path = handler_call_details.method
        return self._handlers.get(path) or _unknown_handler(path, self._unknown)


def compose(method: Method, layers: Sequence[Layer], inner: Next) -> Next:
    for layer in reversed(layers):
        inner = layer(method, inner)
    return inner


def _handler(method: Method, chain: Next) -> grpc.RpcMethodHandler[Any, Any]:
    async def handle(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes | None:
        return await chain(Rpc(method, context, raw))

    # Without serializers both sides are bytes.
    if method.streaming:
        return grpc.unary_stream_rpc_method_handler(handle)
    return grpc.unary_unary_rpc_method_handler(handle)


def _unknown_handler(path: str, chain: Next) -> grpc.RpcMethodHandler[Any, Any]:
    """Reads nothing, so it answers calls of every shape."""

    async def handle(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await chain(Rpc(_UNKNOWN, context, path.encode()))

    return grpc.stream_stream_rpc_method_handler(handle)


async def _refuse(rpc: Rpc[Any]) -> bytes | None:
    raise UnknownMethod(method=rpc.raw.decode())


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
