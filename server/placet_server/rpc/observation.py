"""The outermost layer: what every call leaves in metrics, traces and log lines."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from opentelemetry.trace import Span, use_span

from placet_server.rpc.call import Method, Next, Rpc
from placet_server.telemetry import logs, tracing
from placet_server.telemetry.metric import Metrics
from placet_server.telemetry.tracing import Tracing


class Observation:
    """`tracing` is None when nothing exports spans."""

    def __init__(self, metrics: Metrics, spans: Tracing | None) -> None:
        self._metrics = metrics
        self._spans = spans

    def layer(self, method: Method, inner: Next) -> Next:
        seconds_of = self._metrics.rpcs.of
        path = method.path
        spans = self._spans
        set_current = logs.current.set

        async def observed(rpc: Rpc[Any]) -> bytes | None:
            set_current(rpc)
            started = perf_counter()
            try:
                span = spans.start(method.service, method.name, rpc.metadata) if spans is not None else None
                return await (inner(rpc) if span is None else _traced(span, inner, rpc))
            finally:
                seconds_of(path, rpc.code.name).observe(perf_counter() - started)

        return observed


async def _traced(span: Span, inner: Next, rpc: Rpc[Any]) -> bytes | None:
    rpc.trace_id = tracing.trace_id(span)
    try:
        # The status is ours to set: the exceptions that pass here have become a code already.
        with use_span(span, record_exception=False, set_status_on_exception=False):
            return await inner(rpc)
    finally:
        tracing.end(span, rpc.code.name, rpc.code.value[0], reason=rpc.reason, action_id=rpc.action_id)
