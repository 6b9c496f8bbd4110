"""What the core tells telemetry, counted."""

from __future__ import annotations

from placet_server.model.action import Action
from placet_server.telemetry.metric import Metrics


class CountingObserver:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def settled(self, action: Action, seconds: float) -> None:
        # Not `value`, a property that is written in Python and costs as much as the counting.
        self._metrics.actions.of(action.state._value_).observe(seconds)

    def refused(self, reason: str) -> None:
        self._metrics.refusals.add(reason)

    def flushed(self, items: int, seconds: float) -> None:
        self._metrics.flush_items.of().observe(items)
        self._metrics.flush_seconds.of().observe(seconds)
