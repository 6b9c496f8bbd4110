"""What tenants with a quota use of it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("quota")

FIRST = "00000000-0000-0000-0000-000000000000"


class Charged(NamedTuple):
    """How many were granted, and how long until there is one more."""

    granted: int
    wait_seconds: float


class Usage(NamedTuple):
    open_actions: int
    stored_bytes: int


class Walk(NamedTuple):
    """`after`: the last action that was weighed; `weight_bytes`: of all up to it."""

    after: str
    weight_bytes: int


class Weighed(NamedTuple):
    actions: int
    last: str | None
    weight_bytes: int


async def charge(
    connection: Connection, tenant: str, *, rate: float, wanted: int, now: datetime | None
) -> Charged:
    query = SQL["charge"]
    arguments = query.arguments(tenant=tenant, rate=rate, wanted=wanted, now=now)
    record = await connection.fetchrow(query.sql, *arguments)
    if record is None:
        ensure = SQL["ensure_rate"]
        await connection.execute(ensure.sql, *ensure.arguments(tenant=tenant, rate=rate, now=now))
        record = await connection.fetchrow(query.sql, *arguments)
    assert record is not None
    return Charged(*record)


async def get_usage(connection: Connection, tenant: str) -> Usage:
    query = SQL["get_usage"]
    record = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant))
    return Usage(0, 0) if record is None else Usage(*record)


async def lock_usage(
    connection: Connection, tenant: str, *, interval_seconds: float, now: datetime | None
) -> Walk | None:
    """None: another one counts, or did just now."""
    ensure, query = SQL["ensure_usage"], SQL["lock_usage"]
    await connection.execute(ensure.sql, *ensure.arguments(tenant=tenant))
    arguments = query.arguments(tenant=tenant, interval_seconds=interval_seconds, now=now)
    record = await connection.fetchrow(query.sql, *arguments)
    return None if record is None else Walk(str(record["walk_after"]), record["walk_bytes"])


async def count_open(connection: Connection, tenant: str, *, count_max: int) -> int:
    query = SQL["count_open"]
    count: int = await connection.fetchval(query.sql, *query.arguments(tenant=tenant, count_max=count_max))
    return count


async def weigh_page(connection: Connection, tenant: str, after: str, *, count_max: int) -> Weighed:
    query = SQL["weigh_page"]
    arguments = query.arguments(tenant=tenant, after=after, count_max=count_max)
    record = await connection.fetchrow(query.sql, *arguments)
    assert record is not None
    last = None if record["last"] is None else str(record["last"])
    return Weighed(record["actions"], last, record["bytes"])


async def note_usage(
    connection: Connection,
    tenant: str,
    *,
    open_actions: int,
    stored_bytes: int | None,
    walk: Walk,
    now: datetime | None,
) -> None:
    """`stored_bytes` None: the walk is not over yet."""
    query = SQL["note_usage"]
    arguments = query.arguments(
        tenant=tenant,
        open_actions=open_actions,
        stored_bytes=stored_bytes,
        walk_after=walk.after,
        walk_bytes=walk.weight_bytes,
        now=now,
    )
    await connection.execute(query.sql, *arguments)
