"""Wake-ups of whoever waits for news of an action: here at once, in other processes through the relay.

Polling is the floor.
"""

from __future__ import annotations

import asyncio

from placet_server.core.publication.relay import Relay


class Hub:
    """Belongs to one event loop. A wake-up says only that there may be news."""

    def __init__(self, relay: Relay | None = None) -> None:
        self._relay = relay or Relay()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def publish(self, action_id: str) -> None:
        """Here and elsewhere, what is in the store by now."""
        self.wake(action_id)
        if action_id in self._relay.wanted_elsewhere:
            self._relay.news(action_id)

    def wake(self, action_id: str) -> None:
        """Here."""
        for future in self._waiting.pop(action_id, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        for action_id in list(self._waiting):
            self.wake(action_id)

    def subscribe(self, action_id: str) -> asyncio.Future[None]:
        """Done at the next news. Subscribe before you look, or news between looking and waiting are lost."""
        self._relay.want(action_id)
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
