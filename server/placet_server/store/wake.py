"""Parents to be woken because a step of theirs has ended. One typed function per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from placet_server.model.line import Line
from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("wake")


class Parent(NamedTuple):
    tenant: str
    action_id: str


class Woken(NamedTuple):
    """An action that is ready now, and its line."""

    action_id: str
    line: Line


async def wake(connection: Connection, parents: Sequence[Parent], now: datetime | None) -> list[Woken]:
    """Those of them that waited for a step that has ended."""
    query = SQL["wake"]
    items = [{"tenant": tenant, "parent_id": action_id} for tenant, action_id in parents]
    rows = await connection.fetch(query.sql, *query.arguments(parents=orjson.dumps(items).decode(), now=now))
    return [
        Woken(str(r["action_id"]), Line(r["queue"], r["capability"], r["version"], r["tenant"])) for r in rows
    ]


async def list_parents(connection: Connection, count_max: int) -> list[Parent]:
    """Whom nobody has woken, at most so many."""
    query = SQL["list_parents"]
    rows = await connection.fetch(query.sql, *query.arguments(count_max=count_max))
    return [Parent(r["tenant"], str(r["parent_id"])) for r in rows]


async def drop_left_over(
    connection: Connection, *, age_seconds: float, count_max: int, now: datetime | None
) -> int:
    """Of parents that have ended; rows older than that. How many went."""
    query = SQL["drop_left_over"]
    arguments = query.arguments(age_seconds=age_seconds, count_max=count_max, now=now)
    count: int = await connection.fetchval(query.sql, *arguments)
    return count
