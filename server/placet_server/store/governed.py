"""What governing actions have changed. Every function takes a connection and leaves the tx to its caller."""

from __future__ import annotations

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("governed")


async def hold(connection: Connection, tenant: str, action_id: str, lease_id: str | None) -> bool:
    """Within the tx of the change, as its last but this mark. False: the action is another attempt's, or has ended."""
    query = SQL["hold"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, lease_id=lease_id)
    return await connection.fetchval(query.sql, *arguments) is not None


async def put(connection: Connection, tenant: str, action_id: str, output: str) -> None:
    """Within the tx of the change."""
    query = SQL["put"]
    await connection.execute(query.sql, *query.arguments(tenant=tenant, action_id=action_id, output=output))


async def get(connection: Connection, tenant: str, action_id: str) -> str | None:
    """The output; None: nothing was changed."""
    query = SQL["get"]
    found: str | None = await connection.fetchval(
        query.sql, *query.arguments(tenant=tenant, action_id=action_id)
    )
    return found
