"""What signs the tokens of connectors. The caller owns the tx."""

from __future__ import annotations

from datetime import datetime

from placet_server.store import queries
from placet_server.store.connection import Connection

_SQL = queries.load("signing_key")
LOCK, LIST_KEYS, PUT_KEY = _SQL["lock"], _SQL["list_keys"], _SQL["put_key"]


async def lock(connection: Connection) -> None:
    """Nobody else makes a key until the end of the tx."""
    await connection.execute(LOCK.sql)


async def list_keys(connection: Connection) -> list[str]:
    """In PEM, the newest first."""
    return [str(row["private_key"]) for row in await connection.fetch(LIST_KEYS.sql)]


async def put_key(connection: Connection, key_id: str, private_key: str, now: datetime | None) -> None:
    arguments = PUT_KEY.arguments(key_id=key_id, private_key=private_key, now=now)
    await connection.execute(PUT_KEY.sql, *arguments)
