"""The one writer of what handlers say: the lane items of all attempts of a process share its statements.

Apart from `store/batch.py`, because what is said is bulk: nobody's admission or result should stand behind it, nor
share its connection. While one statement is under way everybody goes on talking, up to a bound for each attempt, and
all of that goes out together with the next one."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
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
        self.waiting: list[asyncio.Future[None]] = []

    @property
    def is_full(self) -> bool:
        return self.items >= UNSTORED_ITEMS_MAX or self.bytes >= UNSTORED_BYTES_MAX


class _Said(NamedTuple):
    item: LaneItem
    size: int
    of: Unstored


class LaneWriter:
    """Owned by the event loop that runs `run`. `bytes_max`: what all attempts together may have said that is not
    stored yet; beyond it they wait."""

    def __init__(self, *, pool: Pool, hub: Hub, clock: Clock, bytes_max: int = 64 * 1024 * 1024) -> None:
        self._pool = pool
        self._hub = hub
        self._clock = clock
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queue: deque[_Said] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._sleeper: asyncio.Future[None] | None = None
        self._closing = False
        self._ended = False

    async def room(self, of: Unstored) -> None:
        """Until more may be said. Raises what the store said of an item that it rejected; StoreUnavailable once the
        writer has ended."""
        while not self._ended and (of.is_full or self._bytes >= self._bytes_max):
            await _told(of.waiting if of.is_full else self._waiting)
        if of.fault is not None:
            raise of.fault
        if self._ended:
            raise StoreUnavailable(detail="the writer has ended")

    async def nothing(self, of: Unstored) -> None:
        """Until all of it is stored. Raises as `room` does, if something is not."""
        while of.items:
            await _told(of.waiting)
        if of.fault is not None:
            raise of.fault

    def say(self, item: LaneItem, of: Unstored) -> None:
        """It is stored soon, after what was said before. Whoever says much has waited for room, and nothing since."""
        if self._ended:
            of.fault = StoreUnavailable(detail="the writer has ended")
            return
        size = len(item["body"])
        of.items += 1
        of.bytes += size
        self._bytes += size
        self._queue.append(_Said(item, size, of))
        self._wake()

    async def run(self) -> None:
        """The writer's task: ends after `close`, once everything said is stored. What is not stored when it is
        cancelled is lost, and told so."""
        try:
            while self._queue or not self._closing:
                if self._queue:
                    await self._store(self._next_count())
                else:
                    self._sleeper = asyncio.get_running_loop().create_future()
                    await self._sleeper
        finally:
            self._ended = True
            self._lose()

    def close(self) -> None:
        """Nothing is said after this."""
        self._closing = True
        self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _next_count(self) -> int:
        """How many of the queue go out together: at least one."""
        count = size = 0
        for said in islice(self._queue, BATCH_ITEMS_MAX):
            count += 1
            size += said.size
            if size >= BATCH_BYTES_MAX:
                break
        return count

    async def _store(self, count: int) -> None:
        """The first of the queue. What the store rejects is halved until the culprit stands alone: then its attempt
        alone is told."""
        batch = list(islice(self._queue, count))
        try:
            await self._insert([said.item for said in batch])
        except Exception as fault:
            if count > 1:
                await self._store(count // 2)
                await self._store(count - count // 2)
                return
            _log.exception(
                "what a handler said cannot be stored", extra={"action_id": batch[0].item["action_id"]}
            )
            batch[0].of.fault = fault
        self._forget(batch)
        for action_id in {said.item["action_id"] for said in batch}:
            self._hub.publish(action_id)

    def _lose(self) -> None:
        lost = list(self._queue)
        for said in lost:
            said.of.fault = StoreUnavailable(detail="the writer has ended")
        self._forget(lost)

    def _forget(self, first: list[_Said]) -> None:
        for said in first:
            self._queue.popleft()
            said.of.items -= 1
            said.of.bytes -= said.size
            self._bytes -= said.size
        for of in {id(said.of): said.of for said in first}.values():
            _tell(of.waiting)
        _tell(self._waiting)

    async def _insert(self, items: list[LaneItem]) -> None:
        while True:
            try:
                async with self._pool.connection() as connection:
                    await events.insert_lane_items(connection, items, self._clock.now())
                return
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)


async def _told(waiting: list[asyncio.Future[None]]) -> None:
    future = asyncio.get_running_loop().create_future()
    waiting.append(future)
    await future


def _tell(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()
