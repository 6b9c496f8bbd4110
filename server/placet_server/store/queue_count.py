"""How much of each queue was begun and ended, by the minute. The rates made of it are `queue.summarize`'s."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import orjson

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("queue_count")

TRIM_MAX = 2000


async def add(
    connection: Connection,
    boot_id: str,
    counts: Mapping[tuple[str, str], tuple[int, int]],
    now: datetime | None,
) -> None:
    """By queue and tenant: how many were claimed, and how many settled."""
    query = SQL["add"]
    items = [
        {"queue": queue, "tenant": tenant, "claimed": claimed, "settled": settled}
        for (queue, tenant), (claimed, settled) in sorted(counts.items())
    ]
    await connection.execute(
        query.sql, *query.arguments(boot_id=boot_id, items=orjson.dumps(items).decode(), now=now)
    )


async def trim(connection: Connection, now: datetime | None) -> None:
    """What is older than two hours, at most TRIM_MAX rows."""
    query = SQL["trim"]
    await connection.execute(query.sql, *query.arguments(count_max=TRIM_MAX, now=now))
