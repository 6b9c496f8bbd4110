"""When somebody is asked what became of an effect. One typed function per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from placet_server.model.action import Action
from placet_server.store import queries
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

SQL = queries.load("reconcile")


class Kind(NamedTuple):
    """Whose lookup is asked, and for whom."""

    capability: str
    version: str
    tenant: str


FIRST = Kind("", "", "")


class Due(NamedTuple):
    """An action to be asked about, as it stood at `claim_time_us`: ambiguous since `since_time_us`, asked about so many
    times, this one included. `wanted`: an operator has asked for it. `child_may_act`: one that it called has not ended.
    """

    action: Action
    asked: int
    wanted: bool
    since_time_us: int
    claim_time_us: int
    child_may_act: bool = False


async def list_kinds(
    connection: Connection, *, after: Kind, count_max: int, now: datetime | None
) -> list[Kind]:
    """In their order, from the one after `after` on. Fewer than `count_max`: these were the last."""
    query = SQL["list_kinds"]
    arguments = query.arguments(**after._asdict(), count_max=count_max, now=now)
    rows = await connection.fetch(query.sql, *arguments)
    return [Kind(r["capability"], r["version"], r["tenant"]) for r in rows]


async def claim_due(
    connection: Connection,
    kinds: Sequence[Kind],
    *,
    each_max: int,
    count_max: int,
    visible_seconds: float,
    now: datetime | None,
) -> list[Due]:
    """At most `each_max` of a kind, with payloads. What another process claims right now is passed over."""
    query = SQL["claim_due"]
    arguments = query.arguments(
        capabilities=[kind.capability for kind in kinds],
        versions=[kind.version for kind in kinds],
        tenants=[kind.tenant for kind in kinds],
        each_max=each_max,
        count_max=count_max,
        visible_seconds=visible_seconds,
        now=now,
    )
    return [
        Due(
            read_action(r),
            r["asked"],
            r["wanted"],
            r["since_time_us"],
            r["claim_time_us"],
            r["child_may_act"],
        )
        for r in await connection.fetch(query.sql, *arguments)
    ]


async def note_finding(
    connection: Connection,
    due: Due,
    *,
    finding: str,
    delay_seconds: float,
    give_up: bool,
    now: datetime | None,
) -> None:
    query = SQL["note_finding"]
    arguments = query.arguments(
        tenant=due.action.requester.tenant,
        action_id=due.action.action_id,
        since_time_us=due.since_time_us,
        finding=finding,
        delay_seconds=delay_seconds,
        give_up=give_up,
        now=now,
    )
    await connection.execute(query.sql, *arguments)


async def give_up(connection: Connection, action: Action, *, event_body: str, now: datetime | None) -> bool:
    """False: it has moved since it was read."""
    query = SQL["give_up"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        event_body=event_body,
        now=now,
    )
    return _count(await connection.execute(query.sql, *arguments)) > 0


async def list_asked(connection: Connection, tenant: str, action_ids: Sequence[str]) -> set[str]:
    """Those of them that somebody is still asked about."""
    query = SQL["list_asked"]
    rows = await connection.fetch(query.sql, *query.arguments(tenant=tenant, action_ids=list(action_ids)))
    return {str(r["action_id"]) for r in rows}


async def want(connection: Connection, tenant: str, action_id: str, *, now: datetime | None) -> bool:
    """False: it is not ambiguous."""
    query = SQL["want"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, now=now)
    return _count(await connection.execute(query.sql, *arguments)) > 0


async def forget(connection: Connection, tenant: str, action_id: str) -> None:
    query = SQL["forget"]
    await connection.execute(query.sql, *query.arguments(tenant=tenant, action_id=action_id))


async def repair(connection: Connection, *, count_max: int, now: datetime | None) -> int:
    query = SQL["repair"]
    return _count(await connection.execute(query.sql, *query.arguments(count_max=count_max, now=now)))


async def drop_settled(connection: Connection, *, count_max: int) -> int:
    query = SQL["drop_settled"]
    return _count(await connection.execute(query.sql, *query.arguments(count_max=count_max)))


def _count(tag: str) -> int:
    return int(tag.rpartition(" ")[2])
