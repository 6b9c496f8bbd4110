"""The events table and the lane of chunks and progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

import orjson

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("event")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event of the life (`sequence` > 0) or a lane item (`attempt` and `number` > 0). `body` is JSON."""

    sequence: int
    attempt: int
    number: int
    type: str
    create_time_us: int
    body: str


class LaneItem(TypedDict):
    """What a handler says. `number` counts within the attempt; `body` is JSON."""

    tenant: str
    action_id: str
    attempt: int
    number: int
    lease_id: str
    type: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One link of the chain, with what it covers."""

    sequence: int
    type: str
    create_time_us: int
    body: str
    receipt: str


async def read(
    connection: Connection,
    *,
    tenant: str,
    action_id: str,
    after_sequence: int,
    after_attempt: int,
    after_number: int,
    count_max: int,
    bytes_max: int,
) -> list[StoredEvent]:
    """Events first, then lane items, each at most `count_max`, each in order, all from one snapshot.

    Lane items end with the one that reaches `bytes_max`.
    """
    query = SQL["read"]
    arguments = query.arguments(
        tenant=tenant,
        action_id=action_id,
        after_sequence=after_sequence,
        after_attempt=after_attempt,
        after_number=after_number,
        count_max=count_max,
        bytes_max=bytes_max,
    )
    return [
        StoredEvent(
            sequence=r["sequence"],
            attempt=r["attempt"],
            number=r["number"],
            type=r["type"],
            create_time_us=r["create_time_us"],
            body=r["body"],
        )
        for r in await connection.fetch(query.sql, *arguments)
    ]


async def last_lane_number(connection: Connection, tenant: str, action_id: str, attempt: int) -> int:
    """0: it has said nothing."""
    query = SQL["last_lane_number"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, attempt=attempt)
    number: int = await connection.fetchval(query.sql, *arguments)
    return number


async def list_tools_told(
    connection: Connection, tenant: str, action_id: str, *, count_max: int
) -> list[tuple[str, str]]:
    """Type and body of what was told of calls among the newest so many items."""
    query = SQL["list_tools_told"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, count_max=count_max)
    return [(r["type"], r["body"]) for r in await connection.fetch(query.sql, *arguments)]


async def insert_lane_items(connection: Connection, items: Sequence[LaneItem], now: datetime | None) -> None:
    """Items of a lost lease are dropped: nobody may say anything for an attempt that was given up."""
    query = SQL["insert_lane_items"]
    await connection.execute(query.sql, *query.arguments(items=orjson.dumps(list(items)).decode(), now=now))


async def list_receipts(connection: Connection, tenant: str, action_id: str) -> list[Receipt]:
    query = SQL["list_receipts"]
    return [
        Receipt(
            sequence=r["sequence"],
            type=r["type"],
            create_time_us=r["create_time_us"],
            body=r["body"],
            receipt=r["receipt"],
        )
        for r in await connection.fetch(query.sql, *query.arguments(tenant=tenant, action_id=action_id))
    ]
