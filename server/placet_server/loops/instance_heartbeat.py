"""Keeps the lease of this boot, from a thread that no handler can block.

The thread has its own event loop and its own connection: a main loop that is stuck for a minute loses no lease. It
renews at a third of the lease. It does not judge by its own clock: whether this boot is dead, only its row says.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from placet_server.model.errors import StoreUnavailable
from placet_server.store.clock import Clock, DatabaseClock
from placet_server.store.connection import Connection, ConnectionOptions, connect, is_away
from placet_server.store.instance import Boot, renew, retire

ANSWER_TIMEOUT_SECONDS_MAX = 2.0
RETRY_SECONDS_MAX = 1.0

_log = logging.getLogger(__name__)


class InstanceHeartbeat:
    """The heartbeat of one boot, whose row exists already. ``start`` and ``stop`` once each, from any thread."""

    def __init__(
        self, dsn: str, boot: Boot, *, on_dead: Callable[[], None], clock: Clock | None = None
    ) -> None:
        """``on_dead``: called once, *in the heartbeat's thread*, when the row says DEAD or is gone."""
        self._dsn = dsn
        self._boot = boot
        self._on_dead = on_dead
        self._clock = clock or DatabaseClock()
        self._interval_seconds = boot.lease_seconds / 3
        self._answer_timeout_seconds = min(self._interval_seconds, ANSWER_TIMEOUT_SECONDS_MAX)
        self._retry_seconds = min(self._interval_seconds / 3, RETRY_SECONDS_MAX)
        self._connection: Connection | None = None
        self._hand_over = True
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="instance-heartbeat", daemon=True)
        # Written by the heartbeat's thread, read by others.
        self._answered_since: float | None = None
        self._answered_last: float | None = None

    def start(self) -> None:
        """Begin to renew. Returns at once."""
        self._thread.start()

    def stop(self, *, hand_over: bool = True) -> None:
        """End the heartbeat, and with ``hand_over`` the lease too. Blocks for a bounded time."""
        if self._thread.ident is None:
            self._loop.close()
            return
        self._hand_over = hand_over
        with suppress(RuntimeError):  # The loop is closed: the boot was declared dead meanwhile.
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(3 * ANSWER_TIMEOUT_SECONDS_MAX)

    @property
    def store_ok_since(self) -> float | None:
        """The monotonic time since when the store has answered without a gap; None while it does not.

        A gap is a heartbeat that failed, or came so late that a lease could have expired in between.
        """
        last, since = self._answered_last, self._answered_since
        if last is None or time.monotonic() - last > self._gap_seconds_max:
            return None
        return since

    def store_ok_for(self, seconds: float) -> bool:
        """Whether the store has answered without a gap for that long: a rescuer asks for one full lease."""
        since = self.store_ok_since
        return since is not None and time.monotonic() - since >= seconds

    @property
    def _gap_seconds_max(self) -> float:
        return self._boot.lease_seconds * 2 / 3

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._beat())

    async def _beat(self) -> None:
        try:
            while not self._stopping.is_set():
                alive = await self._renew()
                self._note_answer(answered=alive is not None)
                if alive is False:
                    self._on_dead()
                    return
                await self._pause(self._interval_seconds if alive else self._retry_seconds)
            if self._hand_over:
                await self._retire()
        finally:
            self._cut()

    async def _renew(self) -> bool | None:
        """Whether the row is alive; None if the store does not say."""
        try:
            async with asyncio.timeout(self._answer_timeout_seconds):
                connection = await self._connected()
                return await renew(connection, self._boot.boot_id, now=self._clock.now())
        except Exception as error:
            if not isinstance(error, StoreUnavailable) and not is_away(error, self._connection):
                _log.exception("the heartbeat of boot %s failed", self._boot.boot_id)
            self._cut()
            return None

    async def _retire(self) -> None:
        with suppress(Exception):  # Nobody waits for it; the lease then expires by itself.
            async with asyncio.timeout(self._answer_timeout_seconds):
                await retire(await self._connected(), self._boot.boot_id, now=self._clock.now())

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            options = ConnectionOptions(
                application_name="placet heartbeat",
                connect_timeout_seconds=self._answer_timeout_seconds,
            )
            self._connection = await connect(self._dsn, options)
        return self._connection

    def _note_answer(self, *, answered: bool) -> None:
        now = time.monotonic()
        last = self._answered_last
        if not answered:
            self._answered_last = self._answered_since = None
        elif last is None or now - last > self._gap_seconds_max:
            self._answered_last = self._answered_since = now
        else:
            self._answered_last = now

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _cut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
