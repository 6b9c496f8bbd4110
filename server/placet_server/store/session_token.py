"""What is kept of the resume tokens of sessions. One typed function per query."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("session_token")


class TokenRow(NamedTuple):
    """What is kept of a session's resume token, and of the one before it; b"": nothing."""

    digest: bytes
    nonce: bytes
    burnt_digest: bytes
    burnt_key_digest: bytes
    is_expired: bool


async def get_token(connection: Connection, tenant: str, session_id: str, now: datetime | None) -> TokenRow:
    """Of a session that this tx has locked."""
    query = SQL["get_token"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, session_id=session_id, now=now))
    assert r is not None, "it is locked"
    return read_token(r)


async def burn_token(
    connection: Connection,
    tenant: str,
    session_id: str,
    *,
    digest: bytes,
    nonce: bytes,
    burnt_digest: bytes,
    burnt_key_digest: bytes,
    seconds: float,
    now: datetime | None,
) -> None:
    """Of a session that this tx has locked."""
    query = SQL["burn_token"]
    arguments = query.arguments(
        tenant=tenant,
        session_id=session_id,
        digest=digest,
        nonce=nonce,
        burnt_digest=burnt_digest,
        burnt_key_digest=burnt_key_digest,
        seconds=seconds,
        now=now,
    )
    await connection.execute(query.sql, *arguments)


def read_token(r: Any) -> TokenRow:
    return TokenRow(
        r["token_digest"] or b"",
        r["token_nonce"] or b"",
        r["burnt_digest"],
        r["burnt_key_digest"],
        r["is_expired"],
    )
