"""Spans of sampled calls only: an unsampled one costs a look at one header.

The decision is the caller's (the flag of `traceparent`, W3C Trace Context) or, without one, a throw of dice.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import random

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# Codes that mean a fault on the server's side, by the OpenTelemetry conventions for gRPC servers.
FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
_SAMPLED = 1

Header = tuple[str, str | bytes]


class Tracing:
    """Starts the span of a call, if it is sampled. `provider` must record whatever it is given."""

    def __init__(self, provider: TracerProvider, ratio: float) -> None:
        self._tracer = provider.get_tracer("placet")
        self._ratio = ratio
        self._propagator = TraceContextTextMapPropagator()

    def start(self, service: str, method: str, metadata: Iterable[Header]) -> Span | None:
        """None: not sampled."""
        carrier = {
            key: value
            for key, value in metadata
            if key in ("traceparent", "tracestate") and isinstance(value, str)
        }
        if not self._sampled(carrier.get("traceparent")):
            return None
        return self._tracer.start_span(
            f"{service}/{method}",
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": method},
        )

    def _sampled(self, traceparent: str | None) -> bool:
        if traceparent is None:
            return random() < self._ratio
        try:
            return bool(int(traceparent.rsplit("-", 1)[1][:2], 16) & _SAMPLED)
        except (IndexError, ValueError):
            return random() < self._ratio


def end(span: Span, code: str, number: int, *, reason: str, action_id: str) -> None:
    """`code` is the gRPC status by name and number. No payload, no message text."""
    span.set_attribute("rpc.grpc.status_code", number)
    if reason:
        span.set_attribute("placet.reason", reason)
    if action_id:
        span.set_attribute("placet.action_id", action_id)
    if code in FAULTS:
        span.set_status(Status(StatusCode.ERROR, reason or code))
    span.end()


def trace_id(span: Span) -> str:
    return format_trace_id(span.get_span_context().trace_id)
