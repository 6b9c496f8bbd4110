"""The dead letters: ended actions that nobody waits for. One typed function per query."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from placet_server.model.action import PRIORITY_DEFAULT, QUEUE_DEFAULT, Action
from placet_server.model.query import DeadLetterFilter
from placet_server.store import queries
from placet_server.store.action import ID_MAX
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

SQL = queries.load("dead_letter")


class Found(NamedTuple):
    """`key_is_taken`: another action holds its key now. `child_is_ambiguous`: one of those that it called.
    `last_redrive`: the body of its newest `redriven` event. `is_passed`: its session has gone on after it, or is
    over.
    """

    action: Action
    key_is_taken: bool
    child_is_ambiguous: bool
    last_redrive: str | None
    is_passed: bool


async def find(
    connection: Connection, tenant: str, action_id: str, now: datetime | None = None
) -> Found | None:
    """Without payloads."""
    query = SQL["find"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, action_id=action_id, now=now))
    if r is None:
        return None
    return Found(
        read_action(r), r["key_is_taken"], r["child_is_ambiguous"], r["last_redrive"], r["is_passed"]
    )


async def redrive(
    connection: Connection,
    action: Action,
    *,
    attempts: int,
    event_body: str,
    approval_id: str,
    now: datetime | None,
) -> bool:
    """Puts the ended action, as it was read, back into line; or, if people had to say yes to it, has them asked anew by
    an approval with that id. False if it has moved, or may not be tried again.
    """
    query = SQL["redrive"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        attempts=attempts,
        queue_default=QUEUE_DEFAULT,
        priority_default=PRIORITY_DEFAULT,
        event_body=event_body,
        approval_id=approval_id,
        former_id=action.approval_id,
        now=now,
    )
    return await connection.fetchval(query.sql, *arguments) is not None


async def list_page(
    connection: Connection,
    tenant: str | None,
    matching: DeadLetterFilter,
    *,
    before: str | None,
    page_size: int,
) -> list[Action]:
    """Newest first, without payloads. `before` is the last id of the page before; `tenant` None: of all tenants."""
    query = SQL["list_page"]
    arguments = query.arguments(
        tenant=tenant, before=before or ID_MAX, page_size=page_size, **_members(matching)
    )
    return [read_action(r) for r in await connection.fetch(query.sql, *arguments)]


async def list_selected(
    connection: Connection, tenant: str, matching: DeadLetterFilter, *, count_max: int
) -> list[str]:
    """Ids, oldest first."""
    query = SQL["list_selected"]
    arguments = query.arguments(tenant=tenant, count_max=count_max, **_members(matching))
    return [str(r["action_id"]) for r in await connection.fetch(query.sql, *arguments)]


def _members(matching: DeadLetterFilter) -> dict[str, object]:
    return {
        "capabilities": list(matching.capabilities),
        "queue": matching.queue or None,
        "reason": matching.reason or None,
    }
