"""Tokens for who puts the first policies in force. Every function leaves the tx to its caller."""

from __future__ import annotations

from datetime import datetime

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("bootstrap")


async def put(connection: Connection, digest: bytes, ttl_seconds: float, now: datetime | None) -> None:
    query = SQL["put"]
    await connection.execute(query.sql, *query.arguments(digest=digest, ttl_seconds=ttl_seconds, now=now))


async def is_valid(connection: Connection, digest: bytes, now: datetime | None) -> bool:
    """It may be used."""
    query = SQL["is_valid"]
    return bool(await connection.fetchval(query.sql, *query.arguments(digest=digest, now=now)))


async def use(connection: Connection, digest: bytes, now: datetime | None) -> bool:
    """Once, in the tx of what it is used for. False: it, or another one, has been used."""
    query = SQL["use"]
    return bool(await connection.fetchval(query.sql, *query.arguments(digest=digest, now=now)))
