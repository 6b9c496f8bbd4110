"""Puts delayed actions into line when they are due, parents whose steps have ended, and runs that have their turn in
their sessions; closes those that nobody may begin any more.
"""

from __future__ import annotations

import logging
import time

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.promote import next_due_seconds, promote
from placet_server.core.publication.session import sweep_sessions
from placet_server.core.publication.wake import drop_left_over, sweep
from placet_server.core.recovery.rescue import close_unwanted, close_withdrawn
from placet_server.loops.loop import repeat

CLOSE_SECONDS = 1.0
DROP_SECONDS = 10.0
PAUSE_SECONDS_MIN = 0.01

_log = logging.getLogger(__name__)


class WakeSweeper:
    """Every process has one; what one moves the others pass over, and all are told of it. The one that has put an
    action off is there in time; so `poll_seconds` is how late it is moved if that one is gone."""

    def __init__(self, journal: Journal, *, poll_seconds: float) -> None:
        self._journal = journal
        self._poll_seconds = poll_seconds
        self._due_seconds: float | None = None
        self._close_at = 0.0
        self._drop_at = 0.0

    async def run(self) -> None:
        await repeat("wake_sweeper", self.step, self._poll_seconds, self._pause)

    async def step(self) -> bool:
        """True if a full batch says that there is more."""
        self._due_seconds = await next_due_seconds(self._journal)
        more = False
        if self._due_seconds is not None and self._due_seconds <= 0:
            more = await promote(self._journal)
            self._due_seconds = None
        if time.monotonic() >= self._close_at:
            more_parents = await sweep(self._journal) | await sweep_sessions(self._journal)
            closed = await close_unwanted(self._journal) + await close_withdrawn(self._journal)
            self._close_at = time.monotonic() + (0.0 if more_parents else CLOSE_SECONDS)
            more |= more_parents
            if closed:
                _log.info(
                    "closed %d actions that were not begun in time, or not wanted or offered any more", closed
                )
        if time.monotonic() >= self._drop_at:
            more_rows = await drop_left_over(self._journal)
            self._drop_at = time.monotonic() + (0.0 if more_rows else DROP_SECONDS)
            more |= more_rows
        return more

    async def _pause(self, seconds: float) -> None:
        """Until the next one is due, if that is sooner."""
        if seconds > 0 and self._due_seconds is not None:
            seconds = max(PAUSE_SECONDS_MIN, min(seconds, self._due_seconds))
        await self._journal.alarm.wait(seconds)
