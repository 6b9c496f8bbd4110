"""What every call leaves in metrics, traces and log lines."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import grpc

from placet_server.rpc.call import Answer, Method, Rpc
from placet_server.telemetry import logs
from placet_server.telemetry.metric import Histogram, HistogramFamily, Metrics

if TYPE_CHECKING:
    from placet_server.rpc.tracing import Traced, Tracing

_OK = grpc.StatusCode.OK
_set_current = logs.current.set


class Observation:
    """`tracing` is None when nothing exports spans."""

    def __init__(self, metrics: Metrics, tracing: Tracing | None) -> None:
        self._metrics = metrics
        self._tracing = tracing

    def layer(self, method: Method) -> Observed:
        return Observed(method, self._metrics.rpcs, self._tracing)


class Observed:
    """The calls of one method."""

    def __init__(self, method: Method, seconds: HistogramFamily, tracing: Tracing | None) -> None:
        self._method = method
        self._seconds = seconds
        self._tracing = tracing
        # The series of the usual code; made by the first call, so that a method without calls shows none.
        self._seconds_ok: Histogram | None = None

    def begin(self, rpc: Rpc[Any]) -> float:
        """Returns when, for `end`."""
        _set_current(rpc)
        return perf_counter()

    def end(self, rpc: Rpc[Any], started: float) -> None:
        code = rpc.code
        seconds = self._seconds_ok
        if code is not _OK or seconds is None:
            seconds = self._seconds.of(self._method.path, code.name)
            if code is _OK:
                self._seconds_ok = seconds
        seconds.observe(perf_counter() - started)

    def traced(self, answer: Answer) -> Traced | None:
        """`answer` within a span; None when nothing exports spans."""
        return None if self._tracing is None else self._tracing.traced(self._method, answer)
