"""The one writer of a process: every admission and every advance of an action goes to Postgres in shared
flushes.

Why one. A commit costs a round trip, a flush of the log and some hundred microseconds of Python; sixty
calls that each commit alone pay that sixty times. Here they wait for each other a moment and pay once: one
statement, one implicit tx. A second writer on the same queue only halves the batches, so there is one connection
and one task. It is pinned to index plans, because a plan made while the table was empty would scan it for
ever. For Postgres to start a statement costs more than a row does, so a batch gets the least one that is enough.

When to flush. When the event loop has nothing else to do, when most of those who took part lately have queued again, or
after LINGER_SECONDS_MAX. As long as other calls keep the loop busy, waiting for them costs nothing: they are about to
queue, and a flush costs the loop as much as half a call does. How many calls are in flight does not help to decide:
under load most of them still wait for the loop, uncounted. So the writer lets the loop make pass after pass, and takes
two short ones in a row for idleness. A single caller waits two passes, some ten microseconds. But while a batch is
written the loop works on the next one, and would have nothing to work on if all were in it: so what was in the last
batch, and what has queued by its end, is what may come again, and AGAIN of that is enough.

What a result means. `Written` is durable. None means that the statement ran and did not change the row: for
an admission its key is held by another row or this boot is dead, for an advance the lease was lost or the
row moved. After a lost reply the same batch is simply sent again: an admission then meets its own row and
an advance finds its own result in place, so the caller who gets None must look at the row for its own lease
before it believes that somebody else was faster.

What failure means. If the store does not answer, admissions are given up with StoreUnavailable (their
callers must hear soon; a row that was written all the same is found by `core/recovery/ownership.py`), while
advances stay queued until they are written or the process ends: they are results. Children that were sent are given up
once the server process that they were sent to is gone (`store/writer_connection.py`): who calls them looks whether they
are there, and must not look too soon. For the same reason nothing is written on another connection before that, as what
was sent first would come last. A batch that Postgres
rejects is halved until the culprit stands alone, so that one bad item fails alone and one locked row waits
alone. No flush is ever cancelled by one of its callers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import NamedTuple, cast

from placet_server.model.errors import StoreUnavailable
from placet_server.store.batch_item import (
    Admission,
    Advance,
    BegunRow,
    ChildRow,
    EntryItem,
    SubmissionRow,
    WaitingRow,
    Written,
)
from placet_server.store.batch_statement import Kind, statement_for
from placet_server.store.clock import Clock
from placet_server.store.connection import Connection, Failure, classify
from placet_server.store.message import MessageClaimed, is_claimed
from placet_server.store.run import is_there
from placet_server.store.writer_connection import WriterConnection

LINGER_SECONDS_MAX = 0.008
# A pass of the event loop so short that nobody had anything to do in it.
IDLE_PASS_SECONDS = 0.00006
IDLE_PASSES = 2
# In so many a writer that has nothing else to do has begun.
BEGIN_PASSES = 2 + IDLE_PASSES
ITEMS_MAX = 256
# The share of those who may queue again that is not waited beyond.
AGAIN = 0.75
BYTES_MAX = 4 * 1024 * 1024
ANSWER_SECONDS = 4.0
RECONNECT_SECONDS_MAX = 1.0
CONTENDED_SECONDS = 0.2

_log = logging.getLogger(__name__)


class _Item(NamedTuple):
    action_id: str
    document: Admission | SubmissionRow | Advance | EntryItem
    is_admission: bool
    size_bytes: int
    future: asyncio.Future[Written | None]
    kind: Kind = Kind.FLUSH


_kind = itemgetter(5)


class BatchWriter:
    """Owned by the event loop that runs `run`."""

    def __init__(
        self,
        *,
        connect: Callable[[], Awaitable[Connection]],
        boot_id: str,
        clock: Clock,
        observe: Callable[[int, float], None] = lambda items, seconds: None,
    ) -> None:
        self._connection = WriterConnection(connect)
        self._boot_id = boot_id
        self._clock = clock
        self._observe = observe
        self._queue: deque[_Item] = deque()
        self._under_way: list[_Item] = []
        # Children of whom nobody knows whether they were written, with what to tell of them once that is over.
        self._doubted: list[tuple[_Item, StoreUnavailable]] = []
        # So many are not kept waiting for more; never fewer than two.
        self._enough = ITEMS_MAX
        self._sleeper: asyncio.Future[None] | None = None
        self._closing = False
        self._ended = False

    def admit(self, admission: Admission) -> asyncio.Future[Written | None]:
        """Raises StoreUnavailable through the future."""
        size = 600 + len(admission["input"]) + len(admission["labels"])
        return self._put(_Item(admission["action_id"], admission, True, size, self._future()))

    def admit_message(self, admission: Admission) -> asyncio.Future[Written | None]:
        """With the columns of a message that has an id. Raises StoreUnavailable, MessageClaimed through the future."""
        return self._put_new(admission, 600, Kind.ADMIT_MESSAGE)

    def submit(self, submission: SubmissionRow) -> asyncio.Future[Written | None]:
        """Raises StoreUnavailable through the future."""
        return self._put_new(submission, 700, Kind.SUBMIT)

    def submit_message(self, submission: SubmissionRow) -> asyncio.Future[Written | None]:
        """As `admit_message`."""
        return self._put_new(submission, 700, Kind.SUBMIT_MESSAGE)

    def submit_begun(self, row: BegunRow) -> asyncio.Future[Written | None]:
        """None as well if its queue is paused. Raises StoreUnavailable through the future."""
        return self._put_new(row, 800, Kind.SUBMIT_BEGUN)

    def submit_waiting(self, waiting: WaitingRow) -> asyncio.Future[Written | None]:
        """With the columns of a message that has an id, or without. Raises StoreUnavailable, MessageClaimed through the
        future.
        """
        return self._put_new(waiting, 2000 + len(waiting["terms"]), Kind.SUBMIT_WAITING)

    def admit_child(self, child: ChildRow) -> asyncio.Future[Written | None]:
        """None as well if the parent's lease is not this one any more, it is to be cancelled, it is too deep, or the
        entry that makes the child is not there.

        Raises StoreUnavailable through the future.
        """
        return self._put_new(child, 800, Kind.OF_PARENT)

    def advance(self, advance: Advance) -> asyncio.Future[Written | None]:
        """Resolves once the store has answered, however long that takes."""
        size = 400 + len(advance.get("output") or "") + len(advance.get("provider_cursor") or "")
        kind = Kind.ADVANCE_STEP if "parent_id" in advance else Kind.FLUSH
        if "dead_letter" in advance:
            kind = Kind.ADVANCE_QUEUED
        if "awaited" in advance:
            kind = Kind.PARK
        return self._put(_Item(advance["action_id"], advance, False, size, self._future(), kind))

    def append(self, entry: EntryItem) -> asyncio.Future[Written | None]:
        """As `advance`. None: it is no entry that comes next, or the lease is another's."""
        size = 600 + len(entry["body"]) + len(entry["event_body"])
        return self._put(_Item(entry["action_id"], entry, False, size, self._future(), Kind.OF_PARENT))

    async def let_begin(self) -> None:
        """What was just queued is sent, if nothing else is under way: the store is at work on it meanwhile."""
        for _ in range(BEGIN_PASSES):
            if not self._queue or self._under_way:
                return
            await asyncio.sleep(0)

    async def run(self) -> None:
        """The writer's task: ends after `close`, once everything queued is written or the store is gone."""
        try:
            while self._queue or not self._closing:
                await self._wait_for_items()
                if self._doubted:
                    await self._end_doubt()
                if self._queue:
                    self._under_way = self._take()
                    await self._flush(self._under_way)
                    again = AGAIN * (len(self._under_way) + len(self._queue))
                    self._enough = min(ITEMS_MAX, max(2, round(again)))
                    self._under_way = []
        finally:
            self._ended = True
            # Broken off while it waits for the store, it has left these without an answer.
            self._queue.extend(self._under_way)
            self._fail_all(StoreUnavailable(detail="the writer has ended"))
            self._connection.give_up()

    def close(self) -> None:
        """No new items after this."""
        self._closing = True
        self._wake()

    def _future(self) -> asyncio.Future[Written | None]:
        return asyncio.get_running_loop().create_future()

    def _put_new(
        self, row: Admission | SubmissionRow, size_bytes: int, kind: Kind
    ) -> asyncio.Future[Written | None]:
        size_bytes += len(row["input"]) + len(row["labels"])
        return self._put(_Item(row["action_id"], row, True, size_bytes, self._future(), kind))

    def _put(self, item: _Item) -> asyncio.Future[Written | None]:
        if self._ended:
            _resolve_error(item, StoreUnavailable(detail="the writer has ended"))
            return item.future
        self._queue.append(item)
        self._wake()
        return item.future

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def _wait_for_items(self) -> None:
        while not self._queue and not self._doubted and not self._closing:
            await self._sleep()
        began = before = time.monotonic()
        idle_passes = 0
        while idle_passes < IDLE_PASSES and len(self._queue) < self._enough and not self._closing:
            await asyncio.sleep(0)
            now = time.monotonic()
            idle_passes = idle_passes + 1 if now - before < IDLE_PASS_SECONDS else 0
            if now - began > LINGER_SECONDS_MAX:
                return
            before = now

    async def _sleep(self) -> None:
        self._sleeper = asyncio.get_running_loop().create_future()
        try:
            await self._sleeper
        finally:
            self._sleeper = None

    def _take(self) -> list[_Item]:
        """The next batch: within its bounds, and never two advances of one action, whose order would be
        lost.
        """
        batch: list[_Item] = []
        seen: set[str] = set()
        later: list[_Item] = []
        size = 0
        while self._queue and len(batch) < ITEMS_MAX:
            item = self._queue[0]
            if batch and size + item.size_bytes > BYTES_MAX:
                break
            self._queue.popleft()
            if item.action_id in seen:
                later.append(item)
                continue
            if item.is_admission and item.future.cancelled():
                continue
            seen.add(item.action_id)
            size += item.size_bytes
            batch.append(item)
        self._queue.extendleft(reversed(later))
        return batch

    async def _flush(self, batch: list[_Item]) -> None:
        """One statement for each kind of item. What does not matter to Execute has statements of its own, so that
        Execute's stay small; in a batch no two items are of one action, so their order is free.
        """
        if not batch:
            # All were admissions that nobody wants any more.
            return
        if not any(map(_kind, batch)):
            await self._flush_alike(batch)
            return
        for kind in Kind:
            if alike := [item for item in batch if item.kind is kind]:
                await self._flush_alike(alike)

    async def _flush_alike(self, batch: list[_Item]) -> None:
        if batch[0].kind is Kind.OF_PARENT:
            batch, apart = _by_parent(batch)
            if apart:
                await self._flush_alike(apart)
        try:
            await self._send(batch)
        except Exception as error:
            failure = classify(error, self._connection.current)
            if failure is Failure.UNAVAILABLE:
                await self._store_away(batch, error)
            elif len(batch) > 1:
                middle = len(batch) // 2
                await self._flush_alike(batch[:middle])
                await self._flush_alike(batch[middle:])
            elif failure is Failure.CONTENDED:
                self._set_aside(batch[0], error)
            elif is_claimed(error):
                _resolve_error(batch[0], MessageClaimed())
            elif is_there(error):
                _resolve_none(batch[0])
            else:
                _log.error(
                    "the store rejects an item", exc_info=error, extra={"action_id": batch[0].action_id}
                )
                _resolve_error(batch[0], error)

    async def _send(self, batch: Sequence[_Item]) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        connection = self._connection.current
        if connection is None or connection.is_closed():
            connection = await self._open()
        admissions = [item.document for item in batch if item.is_admission]
        advances = [item.document for item in batch if not item.is_admission]
        sql, arguments = statement_for(batch[0].kind, admissions, advances, self._boot_id, self._clock.now())
        records = await connection.fetch(sql, *arguments, timeout=ANSWER_SECONDS)
        written = {str(r[0]): Written(*r[1:]) for r in records}
        for item in batch:
            if not item.future.done():
                item.future.set_result(written.get(item.action_id))
        self._observe(len(batch), loop.time() - begin)

    async def _open(self) -> Connection:
        """A connection after which nothing is in doubt that was sent before it."""
        connection = await self._connection.open()
        doubted, self._doubted = self._doubted, []
        for item, error in doubted:
            _resolve_error(item, error)
        return connection

    async def _end_doubt(self) -> None:
        try:
            await self._open()
        except Exception as error:
            await self._store_away((), error)

    def _set_aside(self, item: _Item, error: Exception) -> None:
        """Somebody holds its row: an admission is given up, an advance tried again after the others."""
        if item.is_admission:
            _resolve_error(item, StoreUnavailable(detail=f"{type(error).__name__}: {error}"))
        else:
            asyncio.get_running_loop().call_later(CONTENDED_SECONDS, self._put, item)

    async def _store_away(self, batch: Sequence[_Item], error: Exception) -> None:
        """Admissions hear of it now, but of children that were sent once it is known whether they are there: who calls
        them goes by that. Advances wait for the store to come back.
        """
        _log.warning("the store does not answer: %s", type(error).__name__)
        sent = len(batch) if self._connection.give_up() else 0
        waiting, text = [*batch, *self._queue], f"{type(error).__name__}: {error}"
        self._queue.clear()
        for place, item in enumerate(waiting):
            if not item.is_admission:
                self._queue.append(item)
            elif item.kind is Kind.OF_PARENT and place < sent:
                self._doubted.append((item, StoreUnavailable(detail=text)))
            else:
                _resolve_error(item, StoreUnavailable(detail=text))
        if self._queue or self._doubted:
            await asyncio.sleep(min(RECONNECT_SECONDS_MAX, 0.05 + 0.01 * len(self._queue)))

    def _fail_all(self, error: Exception) -> None:
        for item in (*self._queue, *(item for item, _ in self._doubted)):
            _resolve_error(item, error)
        self._queue.clear()
        self._doubted.clear()


def _by_parent(batch: list[_Item]) -> tuple[list[_Item], list[_Item]]:
    """Entries with the children of those who make them; and, if there are entries, all other children, as the parents
    of those have ids between the others' and must be locked in order.
    """
    entered = {item.action_id for item in batch if not item.is_admission}
    if not entered:
        return batch, []
    together: list[_Item] = []
    apart: list[_Item] = []
    for item in batch:
        is_apart = item.is_admission and cast(ChildRow, item.document)["parent_id"] not in entered
        (apart if is_apart else together).append(item)
    return together, apart


def _resolve_none(item: _Item) -> None:
    if not item.future.done():
        item.future.set_result(None)


def _resolve_error(item: _Item, error: Exception) -> None:
    if not item.future.done():
        item.future.set_exception(error)
