"""The wake-up of whoever takes work from queues, in this process and, through the relay, in others. A ring says only
that there may be work."""

from __future__ import annotations

import asyncio

from placet_server.core.publication.relay import Relay
from placet_server.model.line import Line

LINES_MAX = 256


class Doorbell:
    """Belongs to one event loop, and has one waiter. Rings while nobody waits are kept."""

    def __init__(self, relay: Relay | None = None) -> None:
        self._relay = relay or Relay()
        self._lines: set[Line] = set()
        self._missed = False
        self._rung = asyncio.Event()

    def ring(self, line: Line | None = None) -> None:
        """None: somewhere, or a slot is free here."""
        self.wake(line)
        if line is not None:
            self._relay.line(line)

    def wake(self, line: Line | None = None) -> None:
        """Here."""
        if line is not None and len(self._lines) < LINES_MAX:
            self._lines.add(line)
        self._rung.set()

    def wake_to_look(self) -> None:
        """Here. What was rung for while nobody listened is known to the store alone."""
        self._missed = True
        self._rung.set()

    def take_missed(self) -> bool:
        """Whether the store is to be looked into since the last time."""
        missed, self._missed = self._missed, False
        return missed

    async def wait(self, seconds: float) -> frozenset[Line]:
        """Returns at a ring, or after so long. The lines that were named; there may be work in others, too."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()
        lines, self._lines = frozenset(self._lines), set()
        return lines
