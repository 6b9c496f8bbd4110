"""Taking away what was kept long enough. Every function works within the tx of `lock_walk`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("retention")

_FIRST_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Up to where the walk along all actions has come; the defaults are before all of them."""

    tenant: str = ""
    action_id: str = _FIRST_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The walk's own time, and until when actions must have ended, and dead letters, to be taken away."""

    now: datetime
    ended_before: datetime
    dead_before: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Actions of one tenant, after one id up to another."""

    tenant: str
    after: str
    last: str


async def lock_walk(connection: Connection, now: datetime) -> Place | None:
    """None: another process is at it, or there is nothing to do yet. Locks it until the tx ends."""
    query = SQL["lock_walk"]
    row = await connection.fetchrow(query.sql, *query.arguments(now=now))
    return None if row is None else Place(tenant=row["tenant"], action_id=str(row["action_id"]))


async def note_walk(connection: Connection, place: Place, next_time: datetime) -> None:
    """`next_time`: not to be gone on with before."""
    query = SQL["note_walk"]
    arguments = query.arguments(tenant=place.tenant, action_id=place.action_id, next_time=next_time)
    await connection.execute(query.sql, *arguments)


async def next_tenant(connection: Connection, after: str) -> str | None:
    query = SQL["next_tenant"]
    found: str | None = await connection.fetchval(query.sql, *query.arguments(tenant=after))
    return found


async def end_of_page(connection: Connection, place: Place, *, before: str, count_max: int) -> str | None:
    """The last of at most `count_max` actions after the place and before that id; None: there are none."""
    query = SQL["end_of_page"]
    arguments = query.arguments(
        tenant=place.tenant, after=place.action_id, before=before, count_max=count_max
    )
    found = await connection.fetchval(query.sql, *arguments)
    return None if found is None else str(found)


async def trim_lanes(
    connection: Connection, page: Page, bounds: Bounds, *, count_max: int, items_max: int
) -> int:
    """Of the first `count_max` actions of the page that go, at most so many chunks. How many there were."""
    query = SQL["trim_lanes"]
    arguments = query.arguments(**_members(page, bounds), count_max=count_max, items_max=items_max)
    count: int = await connection.fetchval(query.sql, *arguments)
    return count


async def trim_deltas(connection: Connection, before: datetime, *, count_max: int, items_max: int) -> int:
    """How many items; `items_max`: there may be more."""
    query = SQL["trim_deltas"]
    arguments = query.arguments(before=before, count_max=count_max, items_max=items_max)
    trimmed: int = await connection.fetchval(query.sql, *arguments)
    return trimmed


async def note_trimmed(connection: Connection, before: datetime, *, count_max: int) -> int:
    """How many runs; `count_max`: there may be more."""
    query = SQL["note_trimmed"]
    noted: int = await connection.fetchval(query.sql, *query.arguments(before=before, count_max=count_max))
    return noted


async def delete_ended(
    connection: Connection, page: Page, bounds: Bounds, *, count_max: int, events_max: int
) -> tuple[int, str | None]:
    """How many actions went, and after which one there may be more on the page."""
    query = SQL["delete_ended"]
    arguments = query.arguments(**_members(page, bounds), count_max=count_max, events_max=events_max)
    row = await connection.fetchrow(query.sql, *arguments)
    assert row is not None
    return row["deleted"], None if row["more_after"] is None else str(row["more_after"])


async def delete_verdicts(
    connection: Connection,
    *,
    now: datetime,
    used_before: datetime,
    before: str,
    count_max: int,
    actions_max: int,
) -> tuple[int, int]:
    """Verdicts of one tenant, last used by then, that none of its actions before that id names. How many were looked
    at, and how many are gone."""
    query = SQL["delete_verdicts"]
    arguments = query.arguments(
        now=now, used_before=used_before, before=before, count_max=count_max, actions_max=actions_max
    )
    row = await connection.fetchrow(query.sql, *arguments)
    assert row is not None
    return row["examined"], row["deleted"]


async def delete_boots(connection: Connection, dead_before: datetime, *, count_max: int) -> int:
    query = SQL["delete_boots"]
    arguments = query.arguments(dead_before=dead_before, count_max=count_max)
    count: int = await connection.fetchval(query.sql, *arguments)
    return count


async def delete_reports(connection: Connection, before: datetime, *, count_max: int) -> int:
    query = SQL["delete_reports"]
    count: int = await connection.fetchval(query.sql, *query.arguments(before=before, count_max=count_max))
    return count


async def delete_deliveries(connection: Connection, before: datetime, *, count_max: int) -> int:
    query = SQL["delete_deliveries"]
    count: int = await connection.fetchval(query.sql, *query.arguments(before=before, count_max=count_max))
    return count


def _members(page: Page, bounds: Bounds) -> dict[str, object]:
    return {
        "tenant": page.tenant,
        "after": page.after,
        "last": page.last,
        "now": bounds.now,
        "ended_before": bounds.ended_before,
        "dead_before": bounds.dead_before,
    }
