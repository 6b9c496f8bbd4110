"""Wake-ups within this process: whoever waits for news of an action is told at once.

Across processes, polling is the floor.
"""

from __future__ import annotations

import asyncio


class Hub:
    """Belongs to one event loop. A wake-up says only that there may be news."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def publish(self, action_id: str) -> None:
        for future in self._waiting.pop(action_id, ()):
            if not future.done():
                future.set_result(None)

    def subscribe(self, action_id: str) -> asyncio.Future[None]:
        """Done at the next news. Subscribe before you look, or news between looking and waiting are lost."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(action_id, set()).add(future)
        return future

    def unsubscribe(self, action_id: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(action_id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[action_id]

    async def wait(self, action_id: str, future: asyncio.Future[None], seconds: float) -> None:
        """Wait for a subscription, at most so long."""
        try:
            await asyncio.wait((future,), timeout=seconds)
        finally:
            self.unsubscribe(action_id, future)
