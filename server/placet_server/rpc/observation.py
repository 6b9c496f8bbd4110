"""The outermost layer: what every call leaves in metrics, traces and log lines."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from placet_server.rpc.call import Method, Next, Rpc
from placet_server.telemetry import logs
from placet_server.telemetry.metric import Metrics

if TYPE_CHECKING:
    from placet_server.rpc.tracing import Tracing


class Observation:
    """`tracing` is None when nothing exports spans."""

    def __init__(self, metrics: Metrics, tracing: Tracing | None) -> None:
        self._metrics = metrics
        self._tracing = tracing

    def layer(self, method: Method, inner: Next) -> Next:
        seconds_of = self._metrics.rpcs.of
        path = method.path
        set_current = logs.current.set
        if self._tracing is not None:
            inner = self._tracing.layer(method, inner)

        async def observed(rpc: Rpc[Any]) -> bytes | None:
            set_current(rpc)
            started = perf_counter()
            try:
                return await inner(rpc)
            finally:
                seconds_of(path, rpc.code.name).observe(perf_counter() - started)

        return observed
