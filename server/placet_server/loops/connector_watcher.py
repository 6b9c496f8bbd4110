"""Sees which connectors there are to dial, as other servers admit them."""

from __future__ import annotations

import time

from placet_server.core.execution.connectors import Connectors
from placet_server.loops.loop import repeat

INTERVAL_SECONDS = 1.0


class ConnectorWatcher:
    """Each connector is then asked by itself what it serves."""

    def __init__(self, connectors: Connectors) -> None:
        self._connectors = connectors

    async def run(self) -> None:
        await repeat("connector_watcher", self.step, INTERVAL_SECONDS)

    async def step(self) -> bool:
        await self._connectors.learn(time.monotonic())
        return False
