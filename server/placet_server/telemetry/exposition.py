"""/metrics for Prometheus, from threads of its own, so that it answers when the event loop does not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from socket import AI_PASSIVE, SHUT_RDWR, SOCK_STREAM, getaddrinfo
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Thread, Timer
from typing import Any

from prometheus_client import CollectorRegistry, Metric, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from placet_server.telemetry.metric import Histogram, HistogramFamily, Metrics

REQUEST_SECONDS_MAX = 5.0
REQUESTS_AT_ONCE_MAX = 16

log = logging.getLogger("placet.metrics")


class MetricsCollector(Collector):
    """Reads the plain ints when asked, in the asker's thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for histogram in self._metrics.histograms:
            labels = [label.replace(".", "_") for label in histogram.labels]
            spread = HistogramMetricFamily(_name(histogram), histogram.help, labels=labels)
            for values, series in list(histogram.series.items()):
                spread.add_metric(values, _buckets(series), series.total)
            yield spread
        for counter in self._metrics.counters:
            total = CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
            for values, count in list(counter.series.items()):
                total.add_metric(values, count)
            yield total
        for gauge in self._metrics.gauges:
            yield GaugeMetricFamily(gauge.name, gauge.help, gauge.read())


def registry_of(metrics: Metrics) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(metrics))
    return registry


def _name(family: HistogramFamily) -> str:
    """Of OpenTelemetry's as its conventions want them here: without dots, with their unit."""
    if "." not in family.name:
        return family.name
    return family.name.replace(".", "_") + ("_seconds" if family.unit == "s" else "")


def _buckets(series: Histogram) -> list[tuple[str, float]]:
    """Cumulative, by upper bound."""
    buckets, reached = [], 0
    for bound, count in zip((*series.bounds, "+Inf"), list(series.counts), strict=True):
        reached += count
        buckets.append((str(bound), float(reached)))
    return buckets


class MetricsPort:
    """Serves GET /metrics until closed."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Binds. Raises OSError."""
        self._server = _Server(host, port, _Handler.factory(registry))
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="placet-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, TCPServer):
    """A thread per request; who comes when all are taken is turned away."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, handler: type[_Handler]) -> None:
        self.address_family = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)[0][0]
        self._free = BoundedSemaphore(REQUESTS_AT_ONCE_MAX)
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.warning("a request for /metrics failed", exc_info=True)


class _Handler(MetricsHandler):
    """One request per connection, cut off when it takes too long as a whole."""

    def setup(self) -> None:
        super().setup()
        self._limit = Timer(REQUEST_SECONDS_MAX, self._cut_off)
        self._limit.daemon = True
        self._limit.start()

    def finish(self) -> None:
        self._limit.cancel()
        super().finish()

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/metrics":
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _cut_off(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(SHUT_RDWR)
