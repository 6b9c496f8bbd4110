"""Spans of sampled calls, made by OpenTelemetry's interceptor for grpc.aio. Imported only where spans are exported.

The interceptor is run by us, around all layers, rather than by the server: an unsampled
call does not meet it, streams need no second way, and it sees no exception. Left alone it writes the texts of
exceptions and of statuses into the span, and knows no code but one that passes through its own context object.
"""

from __future__ import annotations

from typing import Any

import grpc
from opentelemetry.instrumentation.grpc import aio_server_interceptor
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, format_trace_id, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from placet_server.rpc.call import Answer, Context, Method, Rpc
from placet_server.telemetry.tracing import is_sampled

# Codes that mean a fault on the server's side, by the OpenTelemetry conventions for gRPC servers.
FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)

_W3C = TraceContextTextMapPropagator()


class Tracing:
    """`provider` must record whatever it is given: the sampling is done here, and before."""

    def __init__(self, provider: TracerProvider, ratio: float) -> None:
        # The library is not annotated.
        self._interceptor = aio_server_interceptor(provider)  # type: ignore[no-untyped-call]
        self._ratio = ratio

    def traced(self, method: Method, answer: Answer) -> Traced:
        return Traced(method, answer, self._interceptor, self._ratio)


class Traced:
    """The calls of one method, for those of them that are sampled."""

    def __init__(self, method: Method, answer: Answer, interceptor: Any, ratio: float) -> None:
        self._details = _Details(method)
        self._intercept = interceptor.intercept_service
        self._ratio = ratio

        async def within_span(call: tuple[Rpc[Any], bytes, Context], _: object) -> bytes | Exception | None:
            return await _within_span(answer, *call)

        handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(within_span)

        async def handler_of(_: object) -> grpc.RpcMethodHandler[Any, Any]:
            return handler

        self._handler_of = handler_of

    def wants(self, rpc: Rpc[Any]) -> bool:
        return is_sampled(rpc.trace, self._ratio)

    async def answer(self, rpc: Rpc[Any], raw: bytes, context: Context) -> bytes | None:
        intercepted = await self._intercept(self._handler_of, self._details)
        # What the interceptor takes for the request is ours to choose, and all it does is to hand it on.
        answered: bytes | Exception | None = await intercepted.unary_unary((rpc, raw, context), context)
        if isinstance(answered, Exception):
            raise answered
        return answered


class _Details(grpc.HandlerCallDetails):
    """`method` names the span: by the conventions without the slash that a path begins with."""

    def __init__(self, method: Method) -> None:
        self.method = f"{method.service}/{method.name}"
        self.invocation_metadata = ()


async def _within_span(
    answer: Answer, rpc: Rpc[Any], raw: bytes, context: Context
) -> bytes | Exception | None:
    """An exception has become a status already; it is returned, so that the interceptor does not record it."""
    span = get_current_span()
    rpc.trace_id = format_trace_id(span.get_span_context().trace_id)
    _W3C.inject(rpc.trace)
    try:
        return await answer(rpc, raw, context)
    except Exception as error:
        return error
    finally:
        _describe(span, rpc)


def _describe(span: Span, rpc: Rpc[Any]) -> None:
    """No payload, no message text."""
    span.set_attribute("rpc.grpc.status_code", rpc.code.value[0])
    if rpc.reason:
        span.set_attribute("placet.reason", rpc.reason)
    if rpc.action_id:
        span.set_attribute("placet.action_id", rpc.action_id)
    if rpc.code in FAULTS:
        span.set_status(Status(StatusCode.ERROR, rpc.reason or rpc.code.name))
