"""Lets time pass over what waits for people."""

from __future__ import annotations

import logging

from placet_server.core.decision.expire import pass_time
from placet_server.core.publication.journal import Journal
from placet_server.loops.loop import repeat

POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)


class ApprovalExpirer:
    """Every process has one; what one does the others find done."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def run(self) -> None:
        await repeat("approval_expirer", self.step, POLL_SECONDS)

    async def step(self) -> bool:
        """True if a full batch says that there is more."""
        passed = await pass_time(self._journal)
        if passed.expired:
            _log.info("%d approvals expired", passed.expired)
        return passed.has_more
