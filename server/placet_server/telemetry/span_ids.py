"""Ids of spans: by chance, but for those that others know beforehand."""

from __future__ import annotations

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


class SpanIds(RandomIdGenerator):
    """Belongs to one thread."""

    _next: int | None = None

    def then(self, span_id: int) -> None:
        """So the span is called that is started next."""
        self._next = span_id

    def generate_span_id(self) -> int:
        chosen, self._next = self._next, None
        return super().generate_span_id() if chosen is None else chosen
