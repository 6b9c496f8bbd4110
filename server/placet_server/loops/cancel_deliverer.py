"""Delivers cancels that were asked for through another process to the runs of this one."""

from __future__ import annotations

from placet_server.core.execution.cancel import deliver_cancels
from placet_server.core.execution.engine import Engine
from placet_server.loops.loop import repeat

INTERVAL_SECONDS = 0.4


class CancelDeliverer:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run(self) -> None:
        await repeat("cancel_deliverer", self.step, INTERVAL_SECONDS)

    async def step(self) -> bool:
        """Asks nothing of the store while nothing runs here."""
        if len(self._engine.runs):
            await deliver_cancels(self._engine)
        return False
