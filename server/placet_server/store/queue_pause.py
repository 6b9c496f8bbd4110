"""Which queues begin nothing. The statements that claim read this table themselves."""

from __future__ import annotations

from datetime import datetime

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("queue_pause")

EVERY_TENANT = "-"
"""No tenant's name: a pause of all of them."""
PAUSES_MAX = 1000
"""Of one tenant."""


async def pause(
    connection: Connection,
    queue: str,
    tenant: str | None,
    *,
    paused_by: str,
    reason: str,
    now: datetime | None,
) -> bool:
    """None: for all tenants. False if PAUSES_MAX others are paused for it."""
    query = SQL["pause"]
    arguments = query.arguments(
        queue=queue,
        tenant=tenant or EVERY_TENANT,
        paused_by=paused_by,
        reason=reason,
        now=now,
        count_max=PAUSES_MAX,
    )
    return await connection.fetchval(query.sql, *arguments) is not None


async def resume(connection: Connection, queue: str, tenant: str | None) -> None:
    """None: the pause of all tenants."""
    query = SQL["resume"]
    await connection.execute(query.sql, *query.arguments(queue=queue, tenant=tenant or EVERY_TENANT))
