"""Threads for plain handlers.

A thread cannot be stopped, so one that outlives its deadline keeps its slot until it returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from placet.standing import guarded
from placet_server.model.errors import Overloaded

# How many threads may wait for children, beside each that may work.
LENT_SHARE = 8


class HandlerThreads:
    """At most `threads_max` handlers at a time; who comes later is told at once, before anything is
    stored.
    """

    def __init__(self, threads_max: int, overdue_grace_seconds: float = 60.0) -> None:
        self._threads_max = threads_max
        self._overdue_grace_seconds = overdue_grace_seconds
        # Made as they are needed: those that wait are beside those that work.
        self._executor = ThreadPoolExecutor(
            threads_max * (1 + LENT_SHARE), thread_name_prefix="placet-handler"
        )
        self._reserved = 0
        self._lent = 0
        self._deadlines: dict[int, float] = {}
        self._next_ticket = 0

    def reserve(self) -> None:
        """Raises Overloaded when every slot is taken."""
        if self._reserved >= self._threads_max:
            raise Overloaded(limit="handler_threads", limit_max=self._threads_max)
        self._reserved += 1

    def free(self) -> int:
        return self._threads_max - self._reserved

    def share(self, part: float) -> int:
        """So many of all, at least one."""
        return max(1, int(self._threads_max * part))

    def release(self) -> None:
        """The slot of a reservation that never became a call, or whose call has returned."""
        self._reserved -= 1

    def lend(self) -> None:
        """The thread only waits for a child, which may need one. Raises Overloaded when too many wait so."""
        if self._lent >= self._threads_max * LENT_SHARE:
            raise Overloaded(limit="waiting_threads", limit_max=self._threads_max * LENT_SHARE)
        self._lent += 1
        self._reserved -= 1

    def take_back(self) -> None:
        """It works again, also if there are more than there should be: it could not be kept from it."""
        self._lent -= 1
        self._reserved += 1

    def call(self, function: Callable[[], Any], time_left_seconds: float) -> asyncio.Future[Any]:
        """Run in a thread, under a reservation.

        The future must not be cancelled: the thread would go on unseen.
        """
        ticket = self._next_ticket = self._next_ticket + 1
        self._deadlines[ticket] = time.monotonic() + time_left_seconds + self._overdue_grace_seconds
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._executor, context.run, guarded(function))
        future.add_done_callback(lambda _: self._deadlines.pop(ticket, None))
        return future

    def overdue_count(self) -> int:
        """Threads that are past their deadline by more than the grace: only a new process gets rid of them.

        From any thread.
        """
        now = time.monotonic()
        # A list at once: handlers come and go in the event loop's thread meanwhile.
        return sum(1 for deadline in list(self._deadlines.values()) if deadline < now)

    def close(self) -> None:
        """Without waiting: the process ends."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class ThreadHolding:
    """Of one run, whose thread only waits while it waits for a child."""

    def __init__(self, threads: HandlerThreads) -> None:
        self._threads = threads

    async def lend(self) -> None:
        self._threads.lend()

    async def take_back(self) -> None:
        self._threads.take_back()
