"""Notices that the embedded Postgres has ended: nobody but a server that starts could bring it back."""

from __future__ import annotations

from collections.abc import Callable

from placet_server.embedded.server import EmbeddedPostgres
from placet_server.loops.loop import repeat

INTERVAL_SECONDS = 1.0


class PostgresWatcher:
    def __init__(self, postgres: EmbeddedPostgres, on_ended: Callable[[], None]) -> None:
        """`on_ended` may be called again and again."""
        self._postgres = postgres
        self._on_ended = on_ended

    async def run(self) -> None:
        await repeat("postgres_watcher", self.step, INTERVAL_SECONDS)

    async def step(self) -> bool:
        if not self._postgres.alive:
            self._on_ended()
        return False
