"""What of a server is traced, and read as a gauge."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from placet_server.config import Config, ConfigRefused
from placet_server.kernel_setup import OpenKernel
from placet_server.rpc.health import FeedProbe
from placet_server.rpc.limit import Limiter
from placet_server.telemetry.environment import ProtocolRefused, wanted
from placet_server.telemetry.metric import Metrics

if TYPE_CHECKING:
    from placet_server.harness.tracing import RunTracing
    from placet_server.rpc.tracing import Tracing


class OpenTracing(NamedTuple):
    """Of calls and of agents' runs, into the same traces."""

    calls: Tracing
    runs: RunTracing


def open_tracing(stack: AsyncExitStack, config: Config, metrics: Metrics) -> OpenTracing | None:
    """As OTEL_* says; metrics are sent, too, if it says so. Raises ConfigRefused."""
    try:
        sends_traces, sends_metrics = wanted("TRACES"), wanted("METRICS")
    except ProtocolRefused as error:
        raise ConfigRefused(str(error)) from error
    if not (sends_traces or sends_metrics):
        return None
    from placet_server.telemetry.otlp import MetricsSender, tracer_provider

    if sends_metrics:
        sender = MetricsSender(metrics)
        sender.start()
        stack.push_async_callback(asyncio.to_thread, sender.close)
    if not sends_traces:
        return None
    from placet_server.harness.tracing import RunTracing
    from placet_server.rpc.tracing import Tracing
    from placet_server.telemetry.span_ids import SpanIds

    provider = tracer_provider(ids := SpanIds())
    stack.push_async_callback(asyncio.to_thread, provider.shutdown)
    return OpenTracing(
        calls=Tracing(provider, config.trace_ratio),
        runs=RunTracing(provider, ids, config.trace_ratio, shows_content=config.otel_content),
    )


def count_calls(metrics: Metrics, limiter: Limiter) -> None:
    metrics.add_gauge("placet_calls_in_flight", "Calls in flight.", lambda: limiter.calls.now)
    metrics.add_gauge("placet_watches_in_flight", "Waiting calls in flight.", lambda: limiter.watches.now)


def count_feed(metrics: Metrics, feed: FeedProbe) -> None:
    metrics.add_gauge(
        "placet_feed_lag_seconds",
        "How long a transaction that is still open has held up WatchEvents.",
        lambda: feed.seconds,
    )


def count_work(metrics: Metrics, opened: OpenKernel) -> None:
    """What is under way below the wire."""
    _count_queue_slots(metrics, opened)
    _count_connectors(metrics, opened)
    _count_callbacks(metrics, opened)
    metrics.add_gauge(
        "placet_approvals_pending",
        "What waits for people, counted up to 100,001.",
        lambda: opened.expirer.pending,
    )


def _count_queue_slots(metrics: Metrics, opened: OpenKernel) -> None:
    dispatcher = opened.kernel.dispatcher
    if dispatcher is not None:
        gauges = metrics.add_gauge
        slots = dispatcher.settings.slots_max
        gauges("placet_queue_slots", "Submitted actions that may run at once.", lambda: slots)
        gauges("placet_queue_slots_used", "Those that run.", lambda: dispatcher.running)


def _count_connectors(metrics: Metrics, opened: OpenKernel) -> None:
    gauges, connectors = metrics.add_gauge, opened.connectors
    gauges("placet_connectors", "Addresses of connectors.", connectors.count)
    gauges("placet_connectors_up", "Those that answer and take work.", connectors.count_up)


def _count_callbacks(metrics: Metrics, opened: OpenKernel) -> None:
    gauges, callbacks = metrics.add_gauge, opened.callbacks
    targets = opened.kernel.journal.callbacks
    gauges("placet_callback_targets", "Targets of callbacks.", lambda: len(targets.targets))
    if (reader := callbacks.reader) is not None:
        gauges(
            "placet_callback_file_refused",
            "1: the file of targets has changed to what is refused, and the targets are those before.",
            lambda: int(reader.is_refused),
        )
    if (deliverer := callbacks.deliverer) is not None:
        gauges("placet_callbacks_in_flight", "Callbacks being sent.", lambda: deliverer.in_flight)
        gauges(
            "placet_deliveries_pending",
            "Callbacks of all tenants that are to be delivered yet.",
            lambda: deliverer.counts.pending,
        )
        gauges(
            "placet_deliveries_due",
            "Those of them whose time has come and that nobody has taken.",
            lambda: deliverer.counts.due,
        )
        gauges(
            "placet_deliveries_dead",
            "Callbacks of all tenants that were given up and are kept.",
            lambda: deliverer.counts.dead,
        )
