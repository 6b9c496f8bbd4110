"""The lookups that are under way in this process: a budget of their own, so that nothing else waits for them. Of its
threads, which nobody can stop, no tenant and no capability has more than a share, so that what never returns takes them
from nobody else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from placet.supervisor import Supervisor
from placet_server.core.execution.threads import HandlerThreads
from placet_server.model.errors import Overloaded

LOOKUPS_MAX = 32
THREADS_MAX = 16
# Of a tenant, or of a capability; and of a capability for one tenant.
SHARE_MAX = 8
EACH_MAX = 4
CLOSE_SECONDS = 1.0

T = TypeVar("T")


class Lookups:
    """Belongs to one event loop. `threads` are for plain lookups."""

    def __init__(self) -> None:
        self._supervisor = Supervisor()
        self.threads = HandlerThreads(THREADS_MAX)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._taken: Counter[tuple[str, str]] = Counter()

    def free(self) -> int:
        """How many more may be asked now. One that was given up counts until it ends."""
        return LOOKUPS_MAX - len(self._under_way)

    def start(self, asking: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._supervisor.start(asking)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def reserve(self, tenant: str, capability: str) -> None:
        """A thread. Raises Overloaded when there is none, or none for these."""
        shares = _shares(tenant, capability)
        if any(self._taken[share] >= share_max for share, share_max in shares.items()):
            raise Overloaded(limit="lookup_threads", limit_max=THREADS_MAX)
        self.threads.reserve()
        self._taken.update(shares.keys())

    def release(self, tenant: str, capability: str) -> None:
        """Its thread has returned."""
        self.threads.release()
        for share in _shares(tenant, capability):
            self._taken[share] -= 1
            if not self._taken[share]:
                del self._taken[share]

    async def close(self) -> None:
        """What does not end is left behind: the process ends."""
        self.threads.close()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)


def _shares(tenant: str, capability: str) -> dict[tuple[str, str], int]:
    return {(tenant, ""): SHARE_MAX, ("", capability): SHARE_MAX, (tenant, capability): EACH_MAX}
