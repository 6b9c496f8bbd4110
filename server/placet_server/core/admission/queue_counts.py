"""What this process has begun and ended of each queue, told to the store now and then: rates are of all servers."""

from __future__ import annotations

import time
from collections import Counter

from placet_server.core.publication.journal import Journal
from placet_server.store import queue_count

WRITE_SECONDS = 10.0
QUEUES_MAX = 10_000


class QueueCounts:
    """Belongs to one event loop. Keys are queue and tenant; of more than QUEUES_MAX the newest are not counted."""

    def __init__(self) -> None:
        self._claimed: Counter[tuple[str, str]] = Counter()
        self._settled: Counter[tuple[str, str]] = Counter()
        self._write_at = time.monotonic() + WRITE_SECONDS

    def claimed(self, queue: str, tenant: str) -> None:
        _add(self._claimed, queue, tenant)

    def settled(self, queue: str, tenant: str) -> None:
        _add(self._settled, queue, tenant)

    def is_due(self) -> bool:
        return time.monotonic() >= self._write_at

    async def write(self, journal: Journal) -> None:
        """Raises StoreUnavailable; whether they were added is then not known, and they are not added again."""
        self._write_at = time.monotonic() + WRITE_SECONDS
        claimed, self._claimed = self._claimed, Counter()
        settled, self._settled = self._settled, Counter()
        counts = {key: (claimed[key], settled[key]) for key in claimed.keys() | settled.keys()}
        now = journal.clock.now()
        async with journal.pool.connection() as connection:
            if counts:
                await queue_count.add(connection, journal.boot_id, counts, now)
            await queue_count.trim(connection, now)


def _add(counter: Counter[tuple[str, str]], queue: str, tenant: str) -> None:
    key = (queue, tenant)
    if key in counter or len(counter) < QUEUES_MAX:
        counter[key] += 1
