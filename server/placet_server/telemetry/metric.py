"""Counting that costs a call next to nothing: plain ints, written by the event loop, read by whoever exports."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# As OpenTelemetry's conventions for generative AI have them.
MODEL_SECONDS = tuple(0.01 * 2**n for n in range(14))
TOKENS = tuple(float(4**n) for n in range(14))
ITEMS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)

_MODEL = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")


class Histogram:
    """Counts by upper bound, the last one for all above."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Labels = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class HistogramFamily:
    """One metric; `series` by label values. A name with dots is one of OpenTelemetry's conventions, whose attributes
    are left out where they are empty.
    """

    name: str
    help: str
    unit: str
    labels: tuple[str, ...] = ()
    bounds: Sequence[float]
    series: dict[Labels, Histogram] = field(default_factory=dict)

    def of(self, *labels: str) -> Histogram:
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Histogram(self.bounds)
        return found


@dataclass(slots=True, kw_only=True)
class CounterFamily:
    name: str
    help: str
    labels: tuple[str, ...] = ()
    series: dict[Labels, int] = field(default_factory=dict)

    def add(self, *labels: str, count: int = 1) -> None:
        self.series[labels] = self.series.get(labels, 0) + count


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """Read when exported. `read` is called in another thread."""

    name: str
    help: str
    read: Callable[[], float]


class Metrics:
    """Every metric of one server."""

    def __init__(self) -> None:
        self.rpcs = HistogramFamily(
            name="placet_rpc_seconds",
            help="Calls by method and code.",
            unit="s",
            labels=("method", "code"),
            bounds=SECONDS,
        )
        self.actions = HistogramFamily(
            name="placet_action_seconds",
            help="Actions by outcome, from admission.",
            unit="s",
            labels=("outcome",),
            bounds=SECONDS,
        )
        self.queue_wait = HistogramFamily(
            name="placet_queue_wait_seconds",
            help="Time in a queue, from when the action was ready.",
            unit="s",
            labels=("queue",),
            bounds=SECONDS,
        )
        self.claim_items = HistogramFamily(
            name="placet_claim_items", help="Actions taken from queues together.", unit="1", bounds=ITEMS
        )
        self.flush_items = HistogramFamily(
            name="placet_flush_items", help="Writes that share one commit.", unit="1", bounds=ITEMS
        )
        self.flush_seconds = HistogramFamily(
            name="placet_flush_seconds", help="Time of one commit.", unit="s", bounds=SECONDS
        )
        self.loop_lag = HistogramFamily(
            name="placet_loop_lag_seconds",
            help="How late the event loop runs what is due.",
            unit="s",
            bounds=SECONDS,
        )
        self.model_tokens, self.model_seconds = _of_models()
        self.refusals = _counter("placet_refusals_total", "Refusals of the gates by reason.", "reason")
        self.dead_letters = _counter(
            "placet_dead_letters_total",
            "Actions given up with nobody waiting, by queue, empty for what was executed, and reason.",
            "queue",
            "reason",
        )
        self.reconciled = _counter(
            "placet_reconciled_total",
            "Effects in doubt that a lookup made certain, by what that made of the action.",
            "state",
        )
        self.notifications = _counter(
            "placet_notifications_total", "Wake-ups between processes, sent or heard.", "direction"
        )
        self.deletions = _counter(
            "placet_retention_deletions_total",
            "What was kept long enough and is gone: actions, rows of servers, reports, deliveries, messages, sessions, "
            "verdicts.",
            "kind",
        )
        self.connector_attempts = _counter(
            "placet_connector_attempts_total",
            "Attempts behind connectors: result, failure, not_begun, lost, given_up.",
            "end",
        )
        self.callback_attempts = _counter(
            "placet_callback_attempts_total",
            "Attempts to deliver callbacks: delivered, retried, dead.",
            "end",
        )
        self.gauges: list[Gauge] = []

    @property
    def histograms(self) -> tuple[HistogramFamily, ...]:
        return (
            self.rpcs,
            self.actions,
            self.queue_wait,
            self.claim_items,
            self.flush_items,
            self.flush_seconds,
            self.loop_lag,
            self.model_tokens,
            self.model_seconds,
        )

    @property
    def counters(self) -> tuple[CounterFamily, ...]:
        return (
            self.refusals,
            self.dead_letters,
            self.reconciled,
            self.notifications,
            self.deletions,
            self.connector_attempts,
            self.callback_attempts,
        )

    def add_gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        self.gauges.append(Gauge(name=name, help=help_text, read=read))


def _counter(name: str, help_text: str, *labels: str) -> CounterFamily:
    return CounterFamily(name=name, help=help_text, labels=labels)


def _of_models() -> tuple[HistogramFamily, HistogramFamily]:
    """Tokens and seconds, by the conventions for generative AI."""
    tokens = HistogramFamily(
        name="gen_ai.client.token.usage",
        help="Tokens of an answer of a model, as its provider counted them: input or output.",
        unit="{token}",
        labels=(*_MODEL, "gen_ai.token.type"),
        bounds=TOKENS,
    )
    seconds = HistogramFamily(
        name="gen_ai.client.operation.duration",
        help="Requests to models; what had no answer by why.",
        unit="s",
        labels=(*_MODEL, "error.type"),
        bounds=MODEL_SECONDS,
    )
    return tokens, seconds
