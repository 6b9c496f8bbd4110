"""Sessions. One typed function per query; the order of their runs is `session_run.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import orjson

from placet_server.model.session import NewSession, Session, SessionState
from placet_server.store import queries
from placet_server.store.connection import Connection
from placet_server.store.session_token import TokenRow, read_token

SQL = queries.load("session")


class KeyHolder(NamedTuple):
    """The session that a key has made, and of what."""

    session_id: str
    agent: str
    title: str
    labels: dict[str, str]
    idle_us: int
    token: TokenRow


class Locked(NamedTuple):
    """A session as its tx has it. `is_idle`: without a run for its time. `active_action_id`: whose turn it is, or was
    last. `subject`: whose it is.
    """

    session_id: str
    is_open: bool
    is_idle: bool
    active_action_id: str | None
    run_count: int
    subject: str


async def insert(
    connection: Connection,
    tenant: str,
    subject: str,
    session_id: str,
    wanted: NewSession,
    *,
    key_digest: bytes | None,
    token: tuple[bytes, bytes],
    token_seconds: float,
    open_max: int,
    now: datetime | None,
) -> bool:
    """False: its key has made one before, or so many are open. `token`: what is kept of its resume token, digest and
    nonce.
    """
    query = SQL["insert"]
    arguments = query.arguments(
        tenant=tenant,
        session_id=session_id,
        agent=wanted.agent,
        subject=subject,
        title=wanted.title,
        labels=orjson.dumps(wanted.labels, option=orjson.OPT_SORT_KEYS).decode(),
        idle_seconds=wanted.idle_seconds,
        key_digest=key_digest,
        token_digest=token[0],
        token_nonce=token[1],
        token_seconds=token_seconds,
        open_max=open_max,
        now=now,
    )
    return await connection.fetchval(query.sql, *arguments) is not None


async def find_by_key(connection: Connection, tenant: str, key_digest: bytes) -> KeyHolder | None:
    query = SQL["find_by_key"]
    r = await connection.fetchrow(query.sql, *query.arguments(key_digest=key_digest, tenant=tenant))
    if r is None:
        return None
    labels = orjson.loads(r["labels"])
    return KeyHolder(r["session_id"], r["agent"], r["title"], labels, r["idle_us"], read_token(r))


async def get(
    connection: Connection, tenant: str, subject: str, session_id: str, now: datetime | None
) -> Session | None:
    query = SQL["get"]
    arguments = query.arguments(tenant=tenant, subject=subject, session_id=session_id, now=now)
    r = await connection.fetchrow(query.sql, *arguments)
    return None if r is None else _read(r)


async def list_page(
    connection: Connection,
    tenant: str,
    subject: str,
    *,
    before: str,
    page_size: int,
    now: datetime | None,
) -> list[Session]:
    """Newest first."""
    query = SQL["list_page"]
    arguments = query.arguments(tenant=tenant, subject=subject, before=before, page_size=page_size, now=now)
    return [_read(r) for r in await connection.fetch(query.sql, *arguments)]


async def lock(
    connection: Connection, tenant: str, session_id: str, *, subject: str | None, now: datetime | None
) -> Locked | None:
    """Until the tx ends. `subject` None: whoever's it is."""
    query = SQL["lock"]
    arguments = query.arguments(tenant=tenant, session_id=session_id, subject=subject, now=now)
    r = await connection.fetchrow(query.sql, *arguments)
    return None if r is None else Locked(*r)


async def lock_free(
    connection: Connection, tenant: str, session_id: str, now: datetime | None
) -> Locked | None:
    """Whoever's it is; None, too, if somebody else has locked it."""
    query = SQL["lock_free"]
    arguments = query.arguments(tenant=tenant, session_id=session_id, now=now)
    r = await connection.fetchrow(query.sql, *arguments)
    return None if r is None else Locked(*r)


async def close(connection: Connection, tenant: str, session_id: str, now: datetime | None) -> None:
    query = SQL["close"]
    await connection.execute(query.sql, *query.arguments(tenant=tenant, session_id=session_id, now=now))


async def close_idle(connection: Connection, now: datetime, *, count_max: int) -> int:
    query = SQL["close_idle"]
    return int(await connection.fetchval(query.sql, *query.arguments(now=now, count_max=count_max)))


async def delete_closed(connection: Connection, before: datetime, *, count_max: int) -> int:
    query = SQL["delete_closed"]
    return int(await connection.fetchval(query.sql, *query.arguments(before=before, count_max=count_max)))


def _read(r: Any) -> Session:
    members: dict[str, Any] = dict(r)
    members["state"] = SessionState(members["state"])
    members["labels"] = orjson.loads(members["labels"])
    return Session(**members)
