"""Takes work from the queues as soon as there is some and a slot is free."""

from __future__ import annotations

from placet_server.core.admission.dispatch import Dispatcher
from placet_server.core.publication.doorbell import Doorbell
from placet_server.loops.loop import repeat
from placet_server.model.line import Line


class QueueRunner:
    """Woken by what this process puts into line or finishes; polling finds what others put there."""

    def __init__(self, dispatcher: Dispatcher, doorbell: Doorbell) -> None:
        self._dispatcher = dispatcher
        self._doorbell = doorbell
        self._rung: frozenset[Line] = frozenset()

    async def run(self) -> None:
        await repeat("queue_runner", self.step, self._dispatcher.settings.poll_seconds, self._pause)

    async def step(self) -> bool:
        if self._dispatcher.counts.is_due():
            await self._dispatcher.write_counts()
        return await self._dispatcher.run_once(self._rung)

    async def _pause(self, seconds: float) -> None:
        self._rung = await self._doorbell.wait(min(seconds, self._dispatcher.look_seconds()))
