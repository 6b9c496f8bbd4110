"""/metrics in the Prometheus text format (0.0.4), from a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from placet_server.telemetry.metric import HistogramFamily, Labels, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS_MAX = 5.0


def exposition(metrics: Metrics) -> str:
    return "".join(f"{line}\n" for line in _lines(metrics))


def _lines(metrics: Metrics) -> Iterator[str]:
    for histogram in metrics.histograms:
        yield from _head(histogram.name, histogram.help, "histogram")
        yield from _histogram(histogram)
    for counter in metrics.counters:
        yield from _head(counter.name, counter.help, "counter")
        for values, count in list(counter.series.items()):
            yield f"{counter.name}{_labels(counter.labels, values)} {count}"
    for gauge in metrics.gauges:
        yield from _head(gauge.name, gauge.help, "gauge")
        yield f"{gauge.name} {gauge.read()}"


def _head(name: str, help_text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _histogram(family: HistogramFamily) -> Iterator[str]:
    names = (*family.labels, "le")
    for values, series in list(family.series.items()):
        counts = list(series.counts)
        reached = 0
        for bound, count in zip((*(str(bound) for bound in series.bounds), "+Inf"), counts, strict=True):
            reached += count
            yield f"{family.name}_bucket{_labels(names, (*values, bound))} {reached}"
        yield f"{family.name}_sum{_labels(family.labels, values)} {series.total}"
        yield f"{family.name}_count{_labels(family.labels, values)} {reached}"


def _labels(names: Labels, values: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsPort:
    """Serves GET /metrics until closed."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Binds. Raises OSError."""
        self._server = ThreadingHTTPServer((host, port), _handler(metrics))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="placet-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS_MAX

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = exposition(metrics).encode()
            self.send_response(200)
            self.send_header("content-type", CONTENT_TYPE)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are no news."""

    return Handler
