"""The only place that starts tasks: each has an owner that knows it, logs its fault, and waits for it at
the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

_log = logging.getLogger("placet")


class Supervisor:
    """Tasks that outlive the call that caused them. A fault of one is logged and ends that one alone."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], context: Context | None = None) -> asyncio.Task[Any]:
        """`context`: what it runs in, if not in a copy of what it is started from."""
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Cancel these and wait until they have ended."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def join(self, seconds: float) -> bool:
        """Wait for all; False if some still run after so long."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)
        return not self._tasks

    async def cancel_all(self) -> None:
        await self.stop(list(self._tasks))

    async def abandon(self, seconds: float) -> bool:
        """Cancel all; False if some still run after so long."""
        for task in self._tasks:
            task.cancel()
        return await self.join(seconds)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("a background task failed", exc_info=fault)
