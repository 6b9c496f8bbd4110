"""Delivers cancels that were asked for through another process to the runs of this one."""

from __future__ import annotations

import asyncio

from placet_server.core.execution.cancel import deliver_cancels
from placet_server.core.execution.engine import Engine
from placet_server.loops.loop import repeat

INTERVAL_SECONDS = 0.4


class CancelDeliverer:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked = asyncio.Event()

    async def run(self) -> None:
        await repeat("cancel_deliverer", self.step, INTERVAL_SECONDS, self._pause)

    def hurry(self, action_id: str) -> None:
        """Another process says that it is to stop. Whether that is so, only the store says."""
        if self._engine.runs.get(action_id) is not None:
            self._asked.set()

    async def step(self) -> bool:
        """Asks nothing of the store while nothing runs here."""
        if len(self._engine.runs):
            await deliver_cancels(self._engine)
        return False

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            return
        self._asked.clear()
