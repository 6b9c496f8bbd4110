"""What the core tells telemetry, counted."""

from __future__ import annotations

from placet_server.model.action import Action
from placet_server.model.usage import Usage
from placet_server.telemetry.metric import Metrics

QUEUES_MAX = 50


class CountingObserver:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def settled(self, action: Action, seconds: float) -> None:
        # Not `value`, a property that is written in Python and costs as much as the counting.
        self._metrics.actions.of(action.state._value_).observe(seconds)

    def refused(self, reason: str) -> None:
        self._metrics.refusals.add(reason)

    def claims(self, items: int) -> None:
        self._metrics.claim_items.of().observe(items)

    def claimed(self, queue: str, wait_seconds: float) -> None:
        # Callers choose the names, so there could be any number of them.
        series = self._metrics.queue_wait.series
        named = (queue,) in series or len(series) < QUEUES_MAX
        self._metrics.queue_wait.of(queue if named else "other").observe(wait_seconds)

    def dead(self, queue: str, reason: str) -> None:
        counter = self._metrics.dead_letters
        named = (queue, reason) in counter.series or len(counter.series) < QUEUES_MAX
        counter.add(queue if named else "other", reason)

    def reconciled(self, action: Action) -> None:
        self._metrics.reconciled.add(action.state._value_)

    def connector_ended(self, how: str) -> None:
        self._metrics.connector_attempts.add(how)

    def delivery_tried(self, how: str) -> None:
        self._metrics.callback_attempts.add(how)

    def notified(self, direction: str) -> None:
        self._metrics.notifications.add(direction)

    def deleted(self, kind: str, count: int) -> None:
        self._metrics.deletions.add(kind, count=count)

    def asked_model(self, provider: str, model: str, seconds: float, error: str, usage: Usage | None) -> None:
        self._metrics.model_seconds.of("chat", provider, model, error).observe(seconds)
        if usage is not None:
            tokens = self._metrics.model_tokens
            tokens.of("chat", provider, model, "input").observe(usage.input_tokens)
            tokens.of("chat", provider, model, "output").observe(usage.output_tokens)

    def flushed(self, items: int, seconds: float) -> None:
        self._metrics.flush_items.of().observe(items)
        self._metrics.flush_seconds.of().observe(seconds)
