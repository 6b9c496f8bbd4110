"""Lets time pass over what waits for people."""

from __future__ import annotations

import logging
from time import monotonic

from placet_server.core.decision.expire import count_pending, pass_time
from placet_server.core.publication.journal import Journal
from placet_server.loops.loop import repeat

POLL_SECONDS = 1.0
COUNT_SECONDS = 15.0

_log = logging.getLogger(__name__)


class ApprovalExpirer:
    """Every process has one, and they share what is due. `pending`: how many wait for people, as last counted."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._count_at = 0.0
        self.pending = 0

    async def run(self) -> None:
        await repeat("approval_expirer", self.step, POLL_SECONDS)

    async def step(self) -> bool:
        """True if a full batch says that there is more."""
        passed = await pass_time(self._journal)
        if passed.expired:
            _log.info("%d approvals expired", passed.expired)
        if monotonic() >= self._count_at:
            self.pending = await count_pending(self._journal)
            self._count_at = monotonic() + COUNT_SECONDS
        return passed.has_more
