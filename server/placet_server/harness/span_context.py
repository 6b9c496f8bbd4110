"""Spans that others have made, as ours are below them or linked to them."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def context_of(trace: Mapping[str, str]) -> SpanContext | None:
    """Of headers that are well-formed."""
    parent = trace.get("traceparent")
    if parent is None:
        return None
    _, trace_id, span_id, _ = parent.split("-")[:4]
    return context(trace_id, span_id)


def within(context: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(context))


def context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=_SAMPLED)
