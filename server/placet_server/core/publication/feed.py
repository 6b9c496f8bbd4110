"""The feed of a tenant from a cursor: what is stored, then what comes, without end.

A reader has one page in memory and holds no connection while it tells it, so a slow one costs nobody anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from placet_server.core.publication.feed_cursor import FeedCursors
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import check_text
from placet_server.core.publication.watch import body_of
from placet_server.model.caller import Caller
from placet_server.model.errors import CursorExpired
from placet_server.model.event import Event, EventType, IdleCheckpoint
from placet_server.model.query import FeedFilter
from placet_server.store import feed
from placet_server.store.feed import FeedEvent, FeedLag, FeedPage, FeedPosition, Standing

PAGE_MAX = 500
# What is read at once is bounded by txs, as whatever they wrote is looked at: few where much was written or matches.
TXS_FIRST = 1_000
TXS_MAX = 50_000


async def watch_events(
    journal: Journal,
    caller: Caller,
    after_cursor: str,
    wanted: FeedFilter,
    *,
    from_now: bool = False,
    start: FeedPosition | None = None,
    ends: Callable[[FeedPosition], Awaitable[bool]] | None = None,
) -> AsyncGenerator[Event | IdleCheckpoint, None]:
    """Events of the lives of the tenant's actions, from the first that is kept, or with `from_now` from those that
    are written from here on. A checkpoint says when the past is told; further ones come while nothing does.
    `start`: where to begin without a cursor. `ends`: asked wherever nothing more is there.

    Raises MalformedRequest, CursorExpired.
    """
    pages = watch_pages(journal, caller, after_cursor, wanted, from_now=from_now, start=start, ends=ends)
    async with aclosing(pages) as told:
        async for page in told:
            for item in page:
                yield item


async def watch_pages(
    journal: Journal,
    caller: Caller,
    after_cursor: str,
    wanted: FeedFilter,
    *,
    from_now: bool = False,
    start: FeedPosition | None = None,
    ends: Callable[[FeedPosition], Awaitable[bool]] | None = None,
) -> AsyncGenerator[list[Event | IdleCheckpoint], None]:
    """The same, as many at a time as are read at once."""
    check_text(*wanted.capabilities, *wanted.types, *wanted.labels, *wanted.labels.values())
    cursors = FeedCursors(caller.tenant, wanted)
    begin = await _standing(journal)
    if start is None or after_cursor:
        start = _start(cursors, begin, after_cursor, from_now, is_family=bool(wanted.root_id))
    position = start
    past = (begin.epochs[-1].epoch, begin.settled_xid)
    loop = asyncio.get_running_loop()
    txs_max, is_told, spoke = TXS_FIRST, False, loop.time()
    while True:
        page = await _read(journal, caller.tenant, position, wanted, txs_max)
        if position.xid < page.floor_xid and not (wanted.root_id and page.last_xid is None):
            raise CursorExpired(oldest_cursor=cursors.encode(_oldest(await _standing(journal))))
        is_newest = page.last_xid is None and page.below < position.xid + txs_max
        told: list[Event | IdleCheckpoint] = []
        for event in page.events:
            position = FeedPosition(position.epoch, event.xid, event.action_id, event.sequence)
            told.append(_event(event, cursors.encode(position), (position.epoch, event.xid) < past))
        if told:
            yield told
            spoke = loop.time()
        if len(page.events) == PAGE_MAX:
            txs_max = max(txs_max // 4, 1)
            continue
        position = await _next(journal, position, page)
        if len(page.events) < PAGE_MAX // 4:
            txs_max = min(txs_max * 2, TXS_MAX)
        idle = loop.time() - spoke >= journal.idle_checkpoint_seconds
        if idle or (is_newest and not is_told):
            yield [IdleCheckpoint(action_id="", cursor=cursors.encode(position))]
            spoke = loop.time()
            is_told = is_told or is_newest
        if is_newest and ends is not None and await ends(position):
            return
        if is_newest:
            await asyncio.sleep(journal.poll_seconds)


async def feed_lag(journal: Journal) -> FeedLag:
    """How long the oldest tx that may still write has held up the feeds."""
    async with journal.pool.connection() as connection:
        return await feed.read_lag(connection)


def _start(
    cursors: FeedCursors, begin: Standing, after_cursor: str, from_now: bool, *, is_family: bool
) -> FeedPosition:
    """`is_family`: as long as the first of it is kept all of it is, so that nobody has missed anything."""
    newest = begin.epochs[-1]
    # What is deleted may be younger than a tx that still runs.
    now_xid = max(begin.settled_xid, newest.floor_xid)
    if not after_cursor:
        return FeedPosition(newest.epoch, now_xid) if from_now else _oldest(begin)
    position = cursors.decode(after_cursor)
    epoch = next((found for found in begin.epochs if found.epoch == position.epoch), None)
    is_ahead = epoch is newest and position.xid > now_xid
    is_whole = is_family and epoch is newest
    if epoch is None or (position.xid < epoch.floor_xid and not is_whole) or is_ahead:
        raise CursorExpired(oldest_cursor=cursors.encode(_oldest(begin)))
    return position


def _oldest(standing: Standing) -> FeedPosition:
    return FeedPosition(standing.epochs[0].epoch, standing.epochs[0].floor_xid)


async def _next(journal: Journal, position: FeedPosition, page: FeedPage) -> FeedPosition:
    """After a page that was not full: behind its stretch, or at the beginning of the next epoch."""
    if page.last_xid is not None and page.below > page.last_xid:
        for epoch in (await _standing(journal)).epochs:
            if epoch.epoch > position.epoch:
                return FeedPosition(epoch.epoch, epoch.floor_xid)
    return position if page.below <= position.xid else FeedPosition(position.epoch, page.below)


async def _standing(journal: Journal) -> Standing:
    async with journal.pool.connection() as connection:
        return await feed.standing(connection)


async def _read(
    journal: Journal, tenant: str, position: FeedPosition, wanted: FeedFilter, txs_max: int
) -> FeedPage:
    await journal.feed_tail.summarize(journal.pool)
    async with journal.pool.connection() as connection:
        return await feed.read(connection, tenant, position, wanted, txs_max=txs_max, count_max=PAGE_MAX)


def _event(stored: FeedEvent, cursor: str, replayed: bool) -> Event:
    body = body_of(stored.type, stored.create_time_us, stored.body)
    return Event(
        action_id=stored.action_id,
        type=EventType(stored.type),
        cursor=cursor,
        create_time_us=stored.create_time_us,
        sequence=stored.sequence,
        attempt=body.get("attempt", 0),
        replayed=replayed,
        body=body,
    )
