"""Takes over from boots that fell silent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from placet_server.core.publication.journal import Journal
from placet_server.core.recovery.rescue import BATCH_MAX, declare_dead, rescue, rescue_ownerless
from placet_server.loops.loop import repeat

OWNERLESS_SECONDS = 10.0

_log = logging.getLogger(__name__)


class LeaseRescuer:
    """`store_ok_for(seconds)`: whether this process has seen the store answer for so long without a gap.
    After an outage every boot looks silent, so nobody is declared dead before the living have had a whole
    lease to be heard."""

    def __init__(
        self, journal: Journal, *, store_ok_for: Callable[[float], bool], lease_seconds: float
    ) -> None:
        self._journal = journal
        self._store_ok_for = store_ok_for
        self._lease_seconds = lease_seconds
        self._look_at = 0.0

    async def run(self) -> None:
        await repeat("lease_rescuer", self.step, min(1.0, self._lease_seconds / 5))

    async def step(self) -> bool:
        """True if a full batch says that there is more."""
        dead = await declare_dead(self._journal) if self._store_ok_for(self._lease_seconds) else 0
        rescued = await rescue(self._journal)
        if not rescued.actions and time.monotonic() >= self._look_at:
            rescued = await rescue_ownerless(self._journal)
            self._look_at = time.monotonic() + OWNERLESS_SECONDS
        if dead or rescued.actions:
            _log.warning(
                "rescued: %d boots dead, %d actions ready again, %d ambiguous, %d closed",
                dead,
                rescued.requeued,
                rescued.ambiguous,
                rescued.closed,
            )
        return rescued.actions >= BATCH_MAX
