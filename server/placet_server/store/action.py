"""The actions table: one typed function per query. What flushes is `store/batch.py`'s."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from placet_server.model.action import Action
from placet_server.model.inline import CAPABILITY as INLINE_AGENT
from placet_server.model.lifecycle import ActionState
from placet_server.model.query import ActionQuery
from placet_server.store import queries
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

SQL = queries.load("action")

SCAN_MAX = 5000
ID_MIN = "00000000-0000-0000-0000-000000000000"
ID_MAX = "ffffffff-ffff-ffff-ffff-ffffffffffff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A further attempt that this boot acquired."""

    time_us: int
    deadline_us: int
    effect_key_expire_time_us: int | None
    budget_time_us: int
    attempt: int
    attempts_max: int
    effect_begun: bool
    sequence: int
    receipt: str
    provider_operation: str
    provider_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """As a mark to cancel it has left it."""

    sequence: int
    state: ActionState
    time_us: int


class Closing(TypedDict):
    """A ready action that is to end, as it was read, with its event."""

    action_id: str
    sequence: int
    lease_id: str
    state: str
    reason: str | None
    cause: str | None
    event_type: str
    event_body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A page. `last_scanned` is where the next one begins; None when the tenant has no more."""

    actions: tuple[Action, ...]
    last_scanned: str | None


async def get(connection: Connection, tenant: str, action_id: str, *, full: bool) -> Action | None:
    query = SQL["get"] if full else SQL["get_summary"]
    record = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, action_id=action_id))
    return None if record is None else read_action(record)


async def map_by_ids(connection: Connection, tenant: str, action_ids: Sequence[str]) -> dict[str, Action]:
    """Those that there are, without payloads."""
    query = SQL["list_by_ids"]
    arguments = query.arguments(tenant=tenant, action_ids=list(action_ids))
    found = [read_action(r) for r in await connection.fetch(query.sql, *arguments)]
    return {action.action_id: action for action in found}


async def get_by_key_digests(connection: Connection, key_digests: Sequence[bytes]) -> list[Action]:
    query = SQL["get_by_keys"]
    return [
        read_action(r)
        for r in await connection.fetch(query.sql, *query.arguments(key_digests=list(key_digests)))
    ]


async def map_by_key_digests(connection: Connection, key_digests: Sequence[bytes]) -> dict[bytes, Action]:
    """Whoever holds them; a key that nobody holds is not in it."""
    query = SQL["get_by_keys"]
    records = await connection.fetch(query.sql, *query.arguments(key_digests=list(key_digests)))
    return {bytes(r["key_digest"]): read_action(r) for r in records}


async def list_page(
    connection: Connection,
    tenant: str,
    query: ActionQuery,
    *,
    before: str | None,
    floor: str | None,
    ceiling: str | None,
) -> Scan:
    """`before` is the last id of the page before; `floor` ≤ id ≤ `ceiling` bounds the ids by prefix."""
    of_family: dict[str, object] = {}
    if query.parent_id or query.root_id:
        of_family = {"parent_id": query.parent_id or None, "root_id": query.root_id or None}
    page = SQL["list_family" if of_family else "list_composed" if query.agent_runs else "list"]
    records = await connection.fetch(
        page.sql,
        *page.arguments(
            tenant=tenant,
            before=before or ID_MAX,
            floor=floor or ID_MIN,
            ceiling=ceiling or ID_MAX,
            scan_max=SCAN_MAX,
            page_size=query.page_size,
            capabilities=list(query.capabilities),
            states=[s.value for s in query.states],
            requester=query.requester or None,
            queue=query.queue or None,
            labels=json.dumps(query.labels),
            create_time_min_us=query.create_time_min_us,
            create_time_max_us=query.create_time_max_us,
            agent_runs=query.agent_runs,
            built_in_agents=[INLINE_AGENT],
            **of_family,
        ),
    )
    actions = tuple(read_action(r) for r in records if r["action_id"] is not None)
    scanned_all = records[0]["scanned_count"] < SCAN_MAX
    if len(actions) == query.page_size:
        return Scan(actions=actions, last_scanned=actions[-1].action_id)
    return Scan(actions=actions, last_scanned=None if scanned_all else records[0]["last_scanned"])


async def claim(
    connection: Connection,
    action: Action,
    *,
    lease_id: str,
    boot_id: str,
    timeout_seconds: float,
    now: datetime | None,
) -> Claimed | None:
    """None: it has moved since it was read, it is not ready yet, or it may not run any more."""
    query = SQL["claim"]
    record = await connection.fetchrow(
        query.sql,
        *query.arguments(
            tenant=action.requester.tenant,
            action_id=action.action_id,
            sequence=action.sequence,
            lease_id=lease_id,
            boot_id=boot_id,
            timeout_seconds=timeout_seconds,
            now=now,
        ),
    )
    if record is None:
        return None
    return Claimed(
        time_us=record["time_us"],
        deadline_us=record["deadline_us"],
        effect_key_expire_time_us=record["effect_key_expire_time_us"],
        budget_time_us=record["budget_time_us"],
        attempt=record["attempt"],
        attempts_max=record["attempts_max"],
        effect_begun=record["effect_begun"],
        sequence=record["sequence"],
        receipt=record["receipt"],
        provider_operation=record["provider_operation"] or "",
        provider_cursor=record["provider_cursor"],
    )


async def request_cancel(
    connection: Connection, *, tenant: str, action_id: str, event_body: str, now: datetime | None
) -> bool:
    """False: not open, or asked for before."""
    query = SQL["request_cancel"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, event_body=event_body, now=now)
    return _changed(await connection.execute(query.sql, *arguments))


async def request_cancel_many(
    connection: Connection,
    *,
    tenant: str,
    action_ids: Sequence[str],
    event_body: str,
    now: datetime | None,
) -> dict[str, Marked]:
    """Those that were open, not asked for before and held by nobody right now, by id."""
    query = SQL["request_cancel_many"]
    arguments = query.arguments(tenant=tenant, action_ids=list(action_ids), event_body=event_body, now=now)
    return {
        str(r["action_id"]): Marked(
            sequence=r["sequence"], state=ActionState(r["state"]), time_us=r["time_us"]
        )
        for r in await connection.fetch(query.sql, *arguments)
    }


async def request_cancel_all(
    connection: Connection, *, tenant: str, action_ids: Sequence[str], event_body: str, now: datetime | None
) -> None:
    """Those that are open and not asked for before, whoever holds them now, in the order that the query says."""
    query = SQL["request_cancel_all"]
    arguments = query.arguments(tenant=tenant, action_ids=list(action_ids), event_body=event_body, now=now)
    await connection.execute(query.sql, *arguments)


async def close_many(
    connection: Connection, *, tenant: str, items: Sequence[Closing], now: datetime | None
) -> set[str]:
    """The ids of those that were as they had been read and held by nobody right now: they have ended."""
    query = SQL["close_many"]
    arguments = query.arguments(tenant=tenant, items=json.dumps(items), now=now)
    return {str(r["action_id"]) for r in await connection.fetch(query.sql, *arguments)}


async def close_queued(
    connection: Connection,
    action: Action,
    *,
    state: ActionState,
    effect: str | None,
    lease_id: str,
    reason: str,
    cause: str | None,
    message: str | None = None,
    failure_code: str | None = None,
    failure_category: str | None = None,
    event_type: str,
    event_body: str,
    dead_letter: bool,
    now: datetime | None,
) -> bool:
    """Ends the ready action as it was read, and takes it out of line; False when it has moved since."""
    query = SQL["close_queued"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        state=state.value,
        effect=effect,
        lease_id=lease_id,
        reason=reason,
        cause=cause,
        message=message,
        failure_code=failure_code,
        failure_category=failure_category,
        event_type=event_type,
        event_body=event_body,
        dead_letter=dead_letter,
        now=now,
    )
    return _changed(await connection.execute(query.sql, *arguments))


async def list_lost(connection: Connection, count_max: int) -> list[Action]:
    query = SQL["list_lost"]
    return [read_action(r) for r in await connection.fetch(query.sql, *query.arguments(count_max=count_max))]


async def list_ownerless(connection: Connection, count_max: int) -> list[Action]:
    query = SQL["list_ownerless"]
    return [read_action(r) for r in await connection.fetch(query.sql, *query.arguments(count_max=count_max))]


async def list_owned(
    connection: Connection,
    boot_id: str,
    *,
    known_ids: Sequence[str],
    age_seconds: float,
    count_max: int,
    now: datetime | None,
) -> list[Action]:
    """Without those of `known_ids`, which would otherwise fill the page and hide the rest."""
    query = SQL["list_owned"]
    arguments = query.arguments(
        boot_id=boot_id,
        known_ids=list(known_ids),
        age_us=int(age_seconds * 1_000_000),
        count_max=count_max,
        now=now,
    )
    return [read_action(r) for r in await connection.fetch(query.sql, *arguments)]


async def list_cancelled(
    connection: Connection, boot_id: str, *, told_ids: Sequence[str], count_max: int
) -> list[str]:
    """Without those of `told_ids`, which would otherwise fill the page and hide the rest."""
    query = SQL["list_cancelled"]
    arguments = query.arguments(boot_id=boot_id, told_ids=list(told_ids), count_max=count_max)
    records = await connection.fetch(query.sql, *arguments)
    return [str(r["action_id"]) for r in records]


async def store_time_us(connection: Connection, now: datetime | None) -> int:
    query = SQL["store_time"]
    value: int = await connection.fetchval(query.sql, *query.arguments(now=now))
    return value


def _changed(tag: str) -> bool:
    return not tag.endswith(" 0")
