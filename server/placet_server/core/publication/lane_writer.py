"""The one writer of what handlers say: the lane items of all attempts of a process share its statements.

Apart from `store/batch.py`, because what is said is bulk: nobody's admission or result should stand behind it, nor
share its connection. While one statement is under way everybody goes on talking, up to a bound for each attempt, and
all of that goes out together with the next one."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple

from placet_server.core.publication.hub import Hub
from placet_server.model.errors import StoreUnavailable
from placet_server.store import event as events
from placet_server.store.clock import Clock
from placet_server.store.event import LaneItem
from placet_server.store.pool import Pool

BATCH_ITEMS_MAX = 256
BATCH_BYTES_MAX = 1024 * 1024
# What one attempt may have said that is not stored yet.
UNSTORED_ITEMS_MAX = 256
UNSTORED_BYTES_MAX = 1024 * 1024
RETRY_SECONDS = 0.25

_log = logging.getLogger(__name__)


class Unstored:
    """What one attempt has said and the store does not hold yet."""

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0
        self.fault: Exception | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_full(self) -> bool:
        return self.items >= UNSTORED_ITEMS_MAX or self.bytes >= UNSTORED_BYTES_MAX

    async def room(self) -> None:
        """Until more may be said. Raises what the store said of an item that it rejected."""
        while self.is_full:
            await self._less()
        if self.fault is not None:
            raise self.fault

    async def nothing(self) -> None:
        """Until all of it is stored. Raises what the store said of an item that it rejected."""
        while self.items:
            await self._less()
        if self.fault is not None:
            raise self.fault

    async def _less(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def stored(self, size: int) -> None:
        self.items -= 1
        self.bytes -= size

    def tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class _Said(NamedTuple):
    item: LaneItem
    size: int
    of: Unstored


class LaneWriter:
    """Owned by the event loop that runs `run`."""

    def __init__(self, *, pool: Pool, hub: Hub, clock: Clock) -> None:
        self._pool = pool
        self._hub = hub
        self._clock = clock
        self._queue: deque[_Said] = deque()
        self._sleeper: asyncio.Future[None] | None = None
        self._closing = False

    def say(self, item: LaneItem, of: Unstored) -> None:
        """It is stored soon, after what was said before. Whoever says it has waited until there was room."""
        size = len(item["body"])
        of.items += 1
        of.bytes += size
        self._queue.append(_Said(item, size, of))
        self._wake()

    async def run(self) -> None:
        """The writer's task: ends after `close`, once everything said is stored."""
        while self._queue or not self._closing:
            if self._queue:
                await self._store(self._take())
            else:
                self._sleeper = asyncio.get_running_loop().create_future()
                await self._sleeper

    def close(self) -> None:
        """Nothing is said after this."""
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _take(self) -> list[_Said]:
        batch: list[_Said] = []
        size = 0
        while self._queue and len(batch) < BATCH_ITEMS_MAX and size < BATCH_BYTES_MAX:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        return batch

    async def _store(self, batch: list[_Said]) -> None:
        """What the store rejects is halved until the culprit stands alone: then its attempt alone is told."""
        try:
            await self._insert([said.item for said in batch])
        except Exception as fault:
            if len(batch) > 1:
                await self._store(batch[: len(batch) // 2])
                await self._store(batch[len(batch) // 2 :])
                return
            _log.exception(
                "what a handler said cannot be stored", extra={"action_id": batch[0].item["action_id"]}
            )
            batch[0].of.fault = fault
        for said in batch:
            said.of.stored(said.size)
        for of in {id(said.of): said.of for said in batch}.values():
            of.tell()
        for action_id in {said.item["action_id"] for said in batch}:
            self._hub.publish(action_id)

    async def _insert(self, items: list[LaneItem]) -> None:
        while True:
            try:
                async with self._pool.connection() as connection:
                    await events.insert_lane_items(connection, items, self._clock.now())
                return
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
