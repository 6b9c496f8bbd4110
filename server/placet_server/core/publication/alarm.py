"""When the sweep of delayed actions is needed next, as far as this process has put something off by itself: sooner than
it would look, if need be."""

from __future__ import annotations

import asyncio
import math


class Alarm:
    """Belongs to one event loop, and has one waiter. What is set while nobody waits is kept."""

    def __init__(self) -> None:
        self._asked = math.inf
        self._until = math.inf
        self._sooner = asyncio.Event()

    def set(self, seconds: float) -> None:
        """Something is due then. The action is in the store."""
        at = asyncio.get_running_loop().time() + seconds
        self._asked = min(self._asked, at)
        if at < self._until:
            self._until = at
            self._sooner.set()

    async def wait(self, seconds: float) -> None:
        """So long, or until the soonest that was set."""
        loop = asyncio.get_running_loop()
        self._until = min(self._asked, loop.time() + seconds)
        while (left := self._until - loop.time()) > 0:
            self._sooner.clear()
            try:
                async with asyncio.timeout(left):
                    await self._sooner.wait()
            except TimeoutError:
                break
        self._asked = self._until = math.inf
