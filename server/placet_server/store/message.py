"""Which message made which action."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, TypedDict

import asyncpg

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("message")

_CONSTRAINT = "message_claims_pkey"


class Claim(NamedTuple):
    """Who took a message, and for what: hex SHA-256."""

    action_id: str
    digest: str


class MessageColumns(TypedDict):
    """What the row of an action says besides, if a message with an id makes it."""

    message_id: str
    message_digest: str
    message_expire_time_us: int


class MessageClaimed(Exception):
    """The message was taken before: nothing was written."""


def is_claimed(error: Exception) -> bool:
    """A statement failed for that reason."""
    return isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == _CONSTRAINT


async def get_claim(connection: Connection, tenant: str, subject: str, message_id: str) -> Claim | None:
    query = SQL["get"]
    arguments = query.arguments(tenant=tenant, subject=subject, message_id=message_id)
    record = await connection.fetchrow(query.sql, *arguments)
    return None if record is None else Claim(str(record["action_id"]), record["digest"])


async def attach_message(
    connection: Connection, tenant: str, subject: str, action_id: str, message: MessageColumns
) -> None:
    """Takes it, if nobody has."""
    query = SQL["attach"]
    arguments = query.arguments(
        tenant=tenant,
        subject=subject,
        message_id=message["message_id"],
        action_id=action_id,
        digest=message["message_digest"],
        expire_time_us=message["message_expire_time_us"],
    )
    await connection.execute(query.sql, *arguments)


async def delete_expired(connection: Connection, now: datetime, *, count_max: int) -> int:
    query = SQL["delete_expired"]
    return int(await connection.fetchval(query.sql, *query.arguments(now=now, count_max=count_max)))
