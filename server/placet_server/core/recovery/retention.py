"""Taking away what was kept long enough: one bounded batch of a walk over all actions, in the order of their primary
key.

Ended actions go with their events, chunks and dead letters; the head of each chain of receipts stays. What is open or
AMBIGUOUS never goes, nor does an action whose key is still known. After them go old reports and deliveries, ids of
messages that would not be taken any more, and what policies said of actions of which none is left. Any number of
processes may do this: the walk has one row, and whoever holds its lock goes on with it.

Beside it, and of open actions too, goes what models said a day ago in turns that have their answer by now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import now_us
from placet_server.store import callback, message, retention
from placet_server.store import session as sessions
from placet_server.store.connection import Connection
from placet_server.store.retention import Bounds, Page, Place

EXAMINED_MAX = 5000
ACTIONS_MAX = 500
EVENTS_MAX = 5000
ITEMS_MAX = 5000
BOOTS_MAX = 1000
REPORTS_MAX = 1000
MESSAGES_MAX = 5000
DELIVERIES_MAX = 1000
VERDICTS_MAX = 200
RUNS_MAX = 100
SESSIONS_MAX = 500
# Of actions that are left from before, so many are looked through for who names a verdict.
NAMING_MAX = 50_000
UNSENT = "no server has sent it for as long as deliveries are kept"
BATCH_SECONDS_MAX = 6.0
WALK_INTERVAL = timedelta(hours=1)
BOOT_KEPT = timedelta(days=1)
# Many times as long as a process goes on naming a verdict without noting that it does.
VERDICT_KEPT = timedelta(days=1)
# What a model says while it says it is for who listens; who comes later reads the answer.
DELTAS_KEPT = timedelta(days=1)
_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long after their end actions are kept, and dead letters, if that is longer; reports, and deliveries after
    their end. None: for ever."""

    ended: timedelta | None
    dead_letter: timedelta | None
    report: timedelta | None = None
    delivery: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """`buried`: deliveries that were given up. `has_more`: the walk goes on at once."""

    actions: int = 0
    boots: int = 0
    reports: int = 0
    messages: int = 0
    sessions: int = 0
    verdicts: int = 0
    deliveries: int = 0
    buried: int = 0
    has_more: bool = False


async def clean(journal: Journal, kept: Retention) -> Cleaned:
    """One batch. Raises StoreUnavailable."""
    now = _EVER + timedelta(microseconds=await now_us(journal))
    has_more = await _trim_deltas(journal, now - DELTAS_KEPT)
    cleaned = await _walk(journal, kept, now)
    return replace(cleaned, has_more=True) if has_more else cleaned


async def _trim_deltas(journal: Journal, before: datetime) -> bool:
    """Of some runs, in statements of their own: each entry that a run writes waits for whoever holds its row. Whether
    there may be more.
    """
    async with journal.pool.connection() as connection:
        trimmed = await retention.trim_deltas(connection, before, count_max=RUNS_MAX, items_max=ITEMS_MAX)
        if trimmed == ITEMS_MAX:
            return True
        return await retention.note_trimmed(connection, before, count_max=RUNS_MAX) == RUNS_MAX


async def _walk(journal: Journal, kept: Retention, now: datetime) -> Cleaned:
    async with journal.pool.tx(BATCH_SECONDS_MAX) as connection:
        place = await retention.lock_walk(connection, now)
        if place is None:
            return Cleaned()
        bounds = _bounds(kept, now)
        page = await _page(connection, place, bounds) if place.tenant else None
        if page is not None:
            return await _clean_page(connection, page, bounds)
        tenant = None if kept.ended is None else await retention.next_tenant(connection, place.tenant)
        if tenant is not None:
            await retention.note_walk(connection, Place(tenant=tenant), now)
            return Cleaned(has_more=True)
        cleaned = await _clean_others(connection, kept, now)
        # Where there may be more of them, the last tenant's walk goes on.
        place, at = (place, now) if cleaned.has_more else (Place(), now + WALK_INTERVAL)
        await retention.note_walk(connection, place, at)
        return cleaned


async def _clean_others(connection: Connection, kept: Retention, now: datetime) -> Cleaned:
    """What does not go with an action."""
    boots = await retention.delete_boots(connection, now - BOOT_KEPT, count_max=BOOTS_MAX)
    reports = deliveries = buried = 0
    if kept.report is not None:
        reports = await retention.delete_reports(connection, now - kept.report, count_max=REPORTS_MAX)
    if kept.delivery is not None:
        deliveries = await retention.delete_deliveries(
            connection, now - kept.delivery, count_max=DELIVERIES_MAX
        )
        buried = await callback.bury_without_target(
            connection,
            # Whoever's: this process may know of no targets.
            (),
            due_seconds=kept.delivery.total_seconds(),
            last_error=UNSENT,
            count_max=DELIVERIES_MAX,
            now=now,
        )
    messages = await message.delete_expired(connection, now, count_max=MESSAGES_MAX)
    idle, sessions = await _clean_sessions(connection, kept, now)
    examined, verdicts = await _clean_verdicts(connection, kept, now)
    return Cleaned(
        boots=boots,
        reports=reports,
        deliveries=deliveries,
        buried=buried,
        messages=messages,
        sessions=sessions,
        verdicts=verdicts,
        has_more=reports == REPORTS_MAX
        or DELIVERIES_MAX in (deliveries, buried)
        or messages == MESSAGES_MAX
        or SESSIONS_MAX in (idle, sessions)
        or examined > 0,
    )


async def _clean_sessions(connection: Connection, kept: Retention, now: datetime) -> tuple[int, int]:
    """How many were idle for their time and are closed, so that their runs go; and how many are gone after theirs."""
    idle = await sessions.close_idle(connection, now, count_max=SESSIONS_MAX)
    if kept.ended is None:
        return idle, 0
    return idle, await sessions.delete_closed(connection, now - kept.ended, count_max=SESSIONS_MAX)


async def _clean_verdicts(connection: Connection, kept: Retention, now: datetime) -> tuple[int, int]:
    """Some of one tenant: how many were looked at, and how many are gone. Actions that may name them are older than
    what is kept: the walk has left few of those."""
    if kept.ended is None:
        return 0, 0
    return await retention.delete_verdicts(
        connection,
        now=now,
        used_before=now - kept.ended - VERDICT_KEPT,
        before=_id_at(now - kept.ended),
        count_max=VERDICTS_MAX,
        actions_max=NAMING_MAX,
    )


async def _page(connection: Connection, place: Place, bounds: Bounds) -> Page | None:
    """The next actions of the tenant that are old enough to have ended in time."""
    last = await retention.end_of_page(
        connection, place, before=_id_at(bounds.ended_before), count_max=EXAMINED_MAX
    )
    return None if last is None else Page(tenant=place.tenant, after=place.action_id, last=last)


async def _clean_page(connection: Connection, page: Page, bounds: Bounds) -> Cleaned:
    trimmed = await retention.trim_lanes(connection, page, bounds, count_max=ACTIONS_MAX, items_max=ITEMS_MAX)
    if trimmed == ITEMS_MAX:
        return Cleaned(has_more=True)
    deleted, more_after = await retention.delete_ended(
        connection, page, bounds, count_max=ACTIONS_MAX, events_max=EVENTS_MAX
    )
    place = Place(tenant=page.tenant, action_id=more_after or page.last)
    await retention.note_walk(connection, place, bounds.now)
    return Cleaned(actions=deleted, has_more=True)


def _bounds(kept: Retention, now: datetime) -> Bounds:
    ended_before = _EVER if kept.ended is None else now - kept.ended
    dead_before = _EVER if kept.dead_letter is None else min(ended_before, now - kept.dead_letter)
    return Bounds(now=now, ended_before=ended_before, dead_before=dead_before)


def _id_at(time: datetime) -> str:
    """The first id of that millisecond; action ids begin with their time."""
    milliseconds = max(0, int((time - _EVER) / timedelta(milliseconds=1)))
    return str(UUID(int=milliseconds << 80))
