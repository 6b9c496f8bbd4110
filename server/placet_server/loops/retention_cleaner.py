"""Takes away what was kept long enough."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from placet_server.core.publication.journal import Journal
from placet_server.core.recovery.retention import Retention, clean
from placet_server.loops.loop import repeat

INTERVAL_SECONDS = 60.0
PAUSE_SECONDS_MIN = 0.02

_log = logging.getLogger(__name__)


class RetentionCleaner:
    """Every process has one, and one at a time goes on. Never busy for more than half of the time.

    `observe`: told of what is gone, "action", "server", "report", "delivery", "message", "session" or "verdict", and
    how many."""

    def __init__(self, journal: Journal, kept: Retention, *, observe: Callable[[str, int], None]) -> None:
        self._journal = journal
        self._kept = kept
        self._observe = observe
        self._took_seconds = 0.0

    async def run(self) -> None:
        await asyncio.sleep(INTERVAL_SECONDS)
        await repeat("retention_cleaner", self.step, INTERVAL_SECONDS, self._pause)

    async def step(self) -> bool:
        """True: the walk goes on."""
        begin = time.monotonic()
        cleaned = await clean(self._journal, self._kept)
        self._took_seconds = time.monotonic() - begin
        if cleaned.buried:
            _log.warning("%d deliveries are dead: no server has sent them for long", cleaned.buried)
        for kind, count in (
            ("action", cleaned.actions),
            ("server", cleaned.boots),
            ("report", cleaned.reports),
            ("delivery", cleaned.deliveries),
            ("message", cleaned.messages),
            ("session", cleaned.sessions),
            ("verdict", cleaned.verdicts),
        ):
            if count:
                self._observe(kind, count)
        return cleaned.has_more

    async def _pause(self, seconds: float) -> None:
        """No longer than the step took, if there is more."""
        await asyncio.sleep(seconds or max(PAUSE_SECONDS_MIN, self._took_seconds))
