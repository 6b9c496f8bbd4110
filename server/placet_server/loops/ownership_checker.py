"""Compares what this boot holds in the store with what it runs."""

from __future__ import annotations

import logging

from placet_server.core.execution.engine import Engine
from placet_server.core.recovery.ownership import release_forgotten
from placet_server.loops.loop import repeat

_log = logging.getLogger(__name__)


class OwnershipChecker:
    def __init__(self, engine: Engine, *, lease_seconds: float) -> None:
        self._engine = engine
        self._interval_seconds = lease_seconds / 3

    async def run(self) -> None:
        await repeat("ownership_checker", self.step, self._interval_seconds)

    async def step(self) -> bool:
        released = await release_forgotten(self._engine)
        if released:
            _log.warning("%d actions whose admission was never answered are ready again", released)
        return False
