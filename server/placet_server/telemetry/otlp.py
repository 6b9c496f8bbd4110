"""Traces and metrics to an OTLP collector, by the standard OTEL_* variables; without them nothing is set up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event, Thread
from time import time_ns

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from placet_server.telemetry.metric import HistogramFamily, Labels, Metrics
from placet_server.telemetry.span_ids import SpanIds

_CUMULATIVE = export.AggregationTemporality.CUMULATIVE


def resource() -> Resource:
    """OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME; the service is `placet` unless they say otherwise."""
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create() if named else Resource.create({SERVICE_NAME: "placet"})


def tracer_provider(ids: SpanIds) -> TracerProvider:
    """Records all it is given: the sampling is done before."""
    provider = TracerProvider(
        sampler=ALWAYS_ON, resource=resource(), shutdown_on_exit=False, id_generator=ids
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class MetricsSender:
    """Sends all metrics every OTEL_METRIC_EXPORT_INTERVAL milliseconds, from a thread of its own."""

    def __init__(self, metrics: Metrics, exporter: export.MetricExporter | None = None) -> None:
        self._metrics = metrics
        self._exporter = exporter or OTLPMetricExporter()
        self._resource = resource()
        self._started = time_ns()
        self._seconds = float(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") or 60_000) / 1000
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="placet-otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Sends once more. Blocks for at most some seconds."""
        self._stopped.set()
        self._thread.join(timeout=5)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.send()
        self.send()

    def send(self) -> None:
        scope = export.ScopeMetrics(
            scope=InstrumentationScope("placet"), metrics=list(self._collected()), schema_url=""
        )
        by_resource = export.ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")
        self._exporter.export(export.MetricsData(resource_metrics=[by_resource]))

    def _collected(self) -> Iterator[export.Metric]:
        now = time_ns()
        for family in self._metrics.histograms:
            points = list(self._histogram_points(family, now))
            data = export.Histogram(data_points=points, aggregation_temporality=_CUMULATIVE)
            yield export.Metric(name=family.name, description=family.help, unit=family.unit, data=data)
        for counter in self._metrics.counters:
            counts = [
                self._number(dict(zip(counter.labels, values, strict=True)), count, now)
                for values, count in list(counter.series.items())
            ]
            total = export.Sum(data_points=counts, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
            yield export.Metric(name=counter.name, description=counter.help, unit="1", data=total)
        for gauge in self._metrics.gauges:
            level = export.Gauge(data_points=[self._number({}, gauge.read(), now)])
            yield export.Metric(name=gauge.name, description=gauge.help, unit="1", data=level)

    def _histogram_points(self, family: HistogramFamily, now: int) -> Iterator[export.HistogramDataPoint]:
        for values, series in list(family.series.items()):
            counts = list(series.counts)
            yield export.HistogramDataPoint(
                attributes=_attributes(family, values),
                start_time_unix_nano=self._started,
                time_unix_nano=now,
                count=sum(counts),
                sum=series.total,
                bucket_counts=counts,
                explicit_bounds=list(series.bounds),
                min=0.0,
                max=float("inf"),
            )

    def _number(self, labels: dict[str, str], value: float, now: int) -> export.NumberDataPoint:
        return export.NumberDataPoint(
            attributes=labels, start_time_unix_nano=self._started, time_unix_nano=now, value=value
        )


def _attributes(family: HistogramFamily, values: Labels) -> dict[str, str]:
    named = dict(zip(family.labels, values, strict=True))
    return {name: value for name, value in named.items() if value} if "." in family.name else named
