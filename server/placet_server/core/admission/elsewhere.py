"""What other servers take from queues, so that work may be stored here that does not run here."""

from __future__ import annotations

import asyncio
from time import monotonic

from placet_server.store import instance
from placet_server.store.pool import Pool

REFRESH_SECONDS = 1.0


class Elsewhere:
    """Belongs to one event loop. What it knows is as old as REFRESH_SECONDS at most; of those who need it newer, one
    reads and the others wait."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._served: frozenset[str] = frozenset()
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def serves(self, capability: str, version: str) -> bool:
        """Whether some living server has its handler and takes work. Raises StoreUnavailable."""
        async with self._reading:
            began = monotonic()
            if self._read_at is None or began - self._read_at > REFRESH_SECONDS:
                async with self._pool.connection() as connection:
                    self._served = await instance.list_served(connection)
                self._read_at = began
        return f"{capability}@{version}" in self._served
