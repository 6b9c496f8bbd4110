"""Reports of recovery, and what they look at. One typed function per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.store import queries
from placet_server.store.action import ID_MAX
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

SQL = queries.load("report")

KEPT_MAX = 1000
"""Of each tenant."""
COUNT_MAX = 100_001
"""What is counted is counted up to here: it says more than 100,000."""


class Counts(NamedTuple):
    """`silent`: of the processes, those not heard of for longer than their lease."""

    ambiguous: int
    dead_letters: int
    processes: int
    silent: int


async def insert(
    connection: Connection,
    *,
    tenant: str,
    report_id: str,
    create_time_us: int,
    requester: str,
    key_digest: bytes | None,
    summary: str,
    document: str,
) -> bool:
    """False: the request made one before."""
    query = SQL["insert"]
    arguments = query.arguments(
        tenant=tenant,
        report_id=report_id,
        create_time_us=create_time_us,
        requester=requester,
        key_digest=key_digest,
        summary=summary,
        document=document,
        kept_max=KEPT_MAX - 1,
    )
    return not (await connection.execute(query.sql, *arguments)).endswith(" 0")


async def get(connection: Connection, tenant: str, report_id: str) -> str | None:
    query = SQL["get"]
    found: str | None = await connection.fetchval(
        query.sql, *query.arguments(tenant=tenant, report_id=report_id)
    )
    return found


async def get_by_key(connection: Connection, key_digest: bytes) -> str | None:
    query = SQL["get_by_key"]
    found: str | None = await connection.fetchval(query.sql, *query.arguments(key_digest=key_digest))
    return found


async def list_page(connection: Connection, tenant: str, *, before: str | None, page_size: int) -> list[str]:
    """`before` is the last id of the page before."""
    query = SQL["list_page"]
    arguments = query.arguments(tenant=tenant, before=before or ID_MAX, page_size=page_size)
    return [r["summary"] for r in await connection.fetch(query.sql, *arguments)]


async def list_lost(
    connection: Connection, tenant: str | None, *, count_max: int, now: datetime | None
) -> tuple[list[Action], int]:
    """Without payloads, and how many there are. `tenant` None: of all tenants."""
    query = SQL["list_lost"]
    arguments = query.arguments(tenant=tenant, scan_max=COUNT_MAX, count_max=count_max, now=now)
    rows = await connection.fetch(query.sql, *arguments)
    return [read_action(r) for r in rows], rows[0]["found"] if rows else 0


async def map_states(connection: Connection, actions: Sequence[Action]) -> dict[str, ActionState]:
    query = SQL["list_states"]
    arguments = query.arguments(
        tenants=[action.requester.tenant for action in actions],
        action_ids=[action.action_id for action in actions],
    )
    rows = await connection.fetch(query.sql, *arguments)
    return {str(r["action_id"]): ActionState(r["state"]) for r in rows}


async def count(connection: Connection, tenant: str | None, now: datetime | None) -> Counts:
    """`tenant` None: of all tenants."""
    query = SQL["count"]
    row = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, count_max=COUNT_MAX, now=now))
    assert row is not None
    return Counts(row["ambiguous"], row["dead_letters"], row["processes"], row["silent"])
