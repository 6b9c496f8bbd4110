"""Actions whose effect may have happened. One typed function per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from placet_server.model.action import Action
from placet_server.store import queries
from placet_server.store.action import ID_MIN
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

SQL = queries.load("ambiguous")


class Doubted(NamedTuple):
    """`attempt_may_act`: the lost attempt may still act, or what it has called may. `last_end`: the body of the newest
    `settled` event.
    """

    action: Action
    attempt_may_act: bool
    last_end: str | None


class Ambiguous(NamedTuple):
    """An action of a page: since when it is ambiguous, and whether the lost attempt may still act.

    How often a lookup was asked, what the last one said, and when one is asked next at the earliest; None: it is an
    operator's to find out.
    """

    action: Action
    since_time_us: int | None
    attempt_may_act: bool
    asked: int
    finding: str
    next_time_us: int | None


async def find(
    connection: Connection, tenant: str, action_id: str, *, grace_seconds: float, now: datetime | None
) -> Doubted | None:
    """With payloads, in whatever state. An attempt may act until so long after its deadline."""
    query = SQL["find"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, grace_seconds=grace_seconds, now=now)
    r = await connection.fetchrow(query.sql, *arguments)
    return None if r is None else Doubted(read_action(r), r["attempt_may_act"], r["last_end"])


async def list_page(
    connection: Connection,
    tenant: str | None,
    *,
    capabilities: Sequence[str],
    after: str | None,
    page_size: int,
    grace_seconds: float,
    now: datetime | None,
) -> list[Ambiguous]:
    """Oldest first, without payloads. `after` is the last id of the page before; `tenant` None: of all tenants."""
    query = SQL["list_page"]
    arguments = query.arguments(
        tenant=tenant,
        capabilities=list(capabilities),
        after=after or ID_MIN,
        page_size=page_size,
        grace_seconds=grace_seconds,
        now=now,
    )
    rows = await connection.fetch(query.sql, *arguments)
    return [
        Ambiguous(
            read_action(r),
            r["since_time_us"],
            r["attempt_may_act"],
            r["asked"],
            r["finding"],
            r["next_time_us"],
        )
        for r in rows
    ]
