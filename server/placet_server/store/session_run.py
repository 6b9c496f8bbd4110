"""The order of the runs of sessions, and what was said in them. One typed function per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from placet_server.model.entry import EntryRow, EntryType
from placet_server.model.line import Line
from placet_server.model.session import SessionPlace
from placet_server.store import queries
from placet_server.store.batch_item import Written
from placet_server.store.connection import Connection

SQL = queries.load("session_run")
ACTION_SQL = queries.load("action")


class Waiting(NamedTuple):
    number: int
    action_id: str


class Held(NamedTuple):
    """What the writer would have heard of it."""

    sequence: int
    receipt: str


class Passed(NamedTuple):
    tenant: str
    session_id: str


class Remembered(NamedTuple):
    """An entry of a run that was before. `is_last`: of what that one remembers; `is_compacted`: which stands for all
    before it, too.
    """

    number: int
    action_id: str
    entry: EntryRow
    is_last: bool
    is_compacted: bool


class Said(NamedTuple):
    """An entry in which something was said. `input`: of the run, where it was asked."""

    number: int
    action_id: str
    ordinal: int
    type: str
    turn: int
    body: str
    input: str | None
    create_time_us: int


async def is_over(connection: Connection, tenant: str, action_id: str) -> bool:
    """Also of one that is not kept any more. If it is, it stays so until the tx ends."""
    query = SQL["is_over"]
    return bool(await connection.fetchval(query.sql, *query.arguments(tenant=tenant, action_id=action_id)))


async def count_waiting(connection: Connection, tenant: str, session_id: str) -> int:
    query = SQL["count_waiting"]
    return int(await connection.fetchval(query.sql, *query.arguments(tenant=tenant, session_id=session_id)))


async def place(
    connection: Connection, row: Mapping[str, Any], *, boot_id: str, now: datetime | None
) -> Written | None:
    """Stores the row of a run as the writer would. None, and what raises: as of the writer."""
    if "approval_id" in row:
        query = ACTION_SQL["submit_waiting"]
    else:
        query = ACTION_SQL["submit_message" if "message_id" in row else "take_over_and_submit"]
    text = orjson.dumps([row]).decode()
    r = await connection.fetchrow(query.sql, *query.arguments(admissions=text, boot_id=boot_id, now=now))
    return None if r is None else Written(*r[1:])


async def add_run(
    connection: Connection,
    tenant: str,
    session_id: str,
    action_id: str,
    *,
    waits: bool,
    now: datetime | None,
) -> int:
    """Its number."""
    query = SQL["add_run"]
    arguments = query.arguments(
        tenant=tenant, session_id=session_id, action_id=action_id, waits=waits, now=now
    )
    return int(await connection.fetchval(query.sql, *arguments))


async def hold(
    connection: Connection, tenant: str, action_id: str, *, event_body: str, now: datetime | None
) -> Held:
    """Of a run that this very tx has stored."""
    query = SQL["hold"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, event_body=event_body, now=now)
    r = await connection.fetchrow(query.sql, *arguments)
    assert r is not None, "it was just stored"
    return Held(*r)


async def next_waiting(connection: Connection, tenant: str, session_id: str) -> Waiting | None:
    query = SQL["next_waiting"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, session_id=session_id))
    return None if r is None else Waiting(*r)


async def release(
    connection: Connection,
    tenant: str,
    session_id: str,
    waiting: Waiting,
    *,
    event_body: str,
    now: datetime | None,
) -> Line | None:
    """None: it does not wait any more, so the turn is not its."""
    query = SQL["release"]
    arguments = query.arguments(
        tenant=tenant,
        session_id=session_id,
        action_id=waiting.action_id,
        number=waiting.number,
        event_body=event_body,
        now=now,
    )
    r = await connection.fetchrow(query.sql, *arguments)
    return None if r is None else Line(r["queue"], r["capability"], r["version"], tenant)


async def find_passed(connection: Connection, tenant: str, action_id: str) -> Passed | None:
    """The session whose next run waits for this action."""
    query = SQL["find_passed"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, action_id=action_id))
    return None if r is None else Passed(*r)


async def list_passed(connection: Connection, *, count_max: int) -> list[Passed]:
    """Sessions whose next run nobody has let begin."""
    query = SQL["list_passed"]
    rows = await connection.fetch(query.sql, *query.arguments(count_max=count_max))
    return [Passed(*r) for r in rows]


async def list_open(connection: Connection, tenant: str, session_id: str, *, before: int) -> list[str]:
    query = SQL["list_open"]
    rows = await connection.fetch(
        query.sql, *query.arguments(tenant=tenant, session_id=session_id, before=before)
    )
    return [r["action_id"] for r in rows]


async def map_places(
    connection: Connection, tenant: str, action_ids: Sequence[str]
) -> dict[str, SessionPlace]:
    """By action id; those that are in no session are not in it."""
    query = SQL["list_places"]
    rows = await connection.fetch(query.sql, *query.arguments(tenant=tenant, action_ids=list(action_ids)))
    return {r["action_id"]: SessionPlace(session_id=r["session_id"], number=r["number"]) for r in rows}


async def list_remembered(
    connection: Connection,
    tenant: str,
    session_id: str,
    *,
    after: tuple[int, int],
    count_max: int,
    bytes_max: int,
) -> list[Remembered]:
    """The newest run first, of each its entries in order. `after`: a run's number and the ordinal of an entry of it."""
    query = SQL["list_remembered"]
    arguments = query.arguments(
        tenant=tenant,
        session_id=session_id,
        after_number=after[0],
        after_ordinal=after[1],
        count_max=count_max,
        bytes_max=bytes_max,
    )
    return [
        Remembered(
            number=r["number"],
            action_id=r["action_id"],
            entry=EntryRow(
                ordinal=r["ordinal"],
                type=EntryType(r["type"]),
                turn=r["turn"],
                attempt=r["attempt"],
                body=r["body"],
            ),
            is_last=r["is_last"],
            is_compacted=r["is_compacted"],
        )
        for r in await connection.fetch(query.sql, *arguments)
    ]


async def list_said(
    connection: Connection,
    tenant: str,
    session_id: str,
    *,
    after: tuple[int, int],
    count_max: int,
    bytes_max: int,
) -> list[Said]:
    """In order, after a run's number and the ordinal of an entry of it."""
    query = SQL["list_said"]
    arguments = query.arguments(
        tenant=tenant,
        session_id=session_id,
        after_number=after[0],
        after_ordinal=after[1],
        count_max=count_max,
        bytes_max=bytes_max,
    )
    return [Said(*r) for r in await connection.fetch(query.sql, *arguments)]
