"""The lookups that are under way in this process: a budget of their own, so that nothing else waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from placet.supervisor import Supervisor
from placet_server.core.execution.threads import HandlerThreads

LOOKUPS_MAX = 32
THREADS_MAX = 8
CLOSE_SECONDS = 1.0

T = TypeVar("T")


class Lookups:
    """Belongs to one event loop. `threads` are for plain lookups."""

    def __init__(self) -> None:
        self._supervisor = Supervisor()
        self.threads = HandlerThreads(THREADS_MAX)
        self._under_way: set[asyncio.Task[Any]] = set()

    def free(self) -> int:
        """How many more may be asked now. One that was given up counts until it ends."""
        return LOOKUPS_MAX - len(self._under_way)

    def start(self, asking: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._supervisor.start(asking)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def close(self) -> None:
        """What does not end is left behind: the process ends."""
        self.threads.close()
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
