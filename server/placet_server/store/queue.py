"""Places in line: what waits for a server. One typed function per query; what puts actions in line is `batch.py`'s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson
from asyncpg import Record

from placet_server.model.action import Action
from placet_server.model.line import PRIORITY_LAST, Line, ReadyLine
from placet_server.store import queries
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

SQL = queries.load("queue")

COUNT_MAX = 100_001
"""Depths are counted up to here: it says more than 100,000."""
QUEUES_MAX = 1000
_FIRST = Line("", "", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineShare:
    """How much of a line to claim, from which place on, up to which priority, and how long its attempts may take.

    `children_only`: nothing but what a handler has called."""

    line: Line
    count_max: int
    after_priority: int = 0
    after_time_us: int = 0
    priority_last: int = PRIORITY_LAST
    children_only: bool = False
    timeout_default_seconds: float
    timeout_max_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What a claim found in line. `action` runs here now, under a lease of its own; None: it may not run, or does not
    wait any more, and its place is as it was. Its input is None if it is longer than asked for.
    """

    tenant: str
    action_id: str
    action: Action | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """`oldest_seconds`: how long the longest-waiting head of a line has been due; None when nothing is.

    `unroutable`: of what is ready, as much as no living server takes.
    Rates are of the last whole minute, over all servers.
    `pause_time_us`: since when it is paused, for the tenant or for all; None if it is not.
    """

    name: str
    ready: int
    delayed: int
    unroutable: int
    oldest_seconds: float | None
    pause_time_us: int | None = None
    paused_reason: str = ""
    claims_per_second: float = 0.0
    settles_per_second: float = 0.0


async def list_lines(connection: Connection, *, after: Line | None, count_max: int) -> list[ReadyLine]:
    """Those not paused, in the order of their names, from the one after `after` on. Fewer than `count_max`: these were
    the last.
    """
    query = SQL["list_lines"]
    arguments = query.arguments(**(after or _FIRST)._asdict(), count_max=count_max)
    return [
        ReadyLine(
            Line(r["queue"], r["capability"], r["version"], r["tenant"]), r["priority"], r["ready_time_us"]
        )
        for r in await connection.fetch(query.sql, *arguments)
    ]


async def claim_batch(
    connection: Connection,
    shares: Sequence[LineShare],
    *,
    boot_id: str,
    input_bytes_max: int,
    now: datetime | None,
) -> list[Picked]:
    """At most `count_max` of each line, in no order. Each action under a lease of its own, which SQL has made."""
    query = SQL["claim_batch"]
    lines = [
        share.line._asdict()
        | {
            "count_max": share.count_max,
            "after_priority": share.after_priority,
            "after_time_us": share.after_time_us,
            "priority_last": share.priority_last,
            "children_only": share.children_only,
            "timeout_default_seconds": share.timeout_default_seconds,
            "timeout_max_seconds": share.timeout_max_seconds,
        }
        for share in shares
    ]
    arguments = query.arguments(
        lines=orjson.dumps(lines).decode(), boot_id=boot_id, input_bytes_max=input_bytes_max, now=now
    )
    return [_picked(r) for r in await connection.fetch(query.sql, *arguments)]


async def peek(connection: Connection, share: LineShare) -> list[str]:
    """The ids of the first in a line, whose places are locked until the tx ends."""
    query = SQL["peek"]
    arguments = query.arguments(
        **share.line._asdict(),
        priority_last=share.priority_last,
        children_only=share.children_only,
        count_max=share.count_max,
    )
    return [str(r["action_id"]) for r in await connection.fetch(query.sql, *arguments)]


async def claim_given(
    connection: Connection,
    share: LineShare,
    holders: Sequence[tuple[str, str]],
    *,
    boot_id: str,
    input_bytes_max: int,
    now: datetime | None,
) -> list[Picked]:
    """`holders`: ids of a line, as `peek` gave them in this tx, and the lease of each."""
    query = SQL["claim_given"]
    items = [{"action_id": action_id, "lease_id": lease_id} for action_id, lease_id in holders]
    arguments = query.arguments(
        items=orjson.dumps(items).decode(),
        tenant=share.line.tenant,
        timeout_default_seconds=share.timeout_default_seconds,
        timeout_max_seconds=share.timeout_max_seconds,
        boot_id=boot_id,
        input_bytes_max=input_bytes_max,
        now=now,
    )
    return [_picked(r) for r in await connection.fetch(query.sql, *arguments)]


async def promote(connection: Connection, count_max: int, now: datetime | None) -> dict[Line, int]:
    """How many of each line became ready."""
    query = SQL["promote"]
    return {
        Line(r["queue"], r["capability"], r["version"], r["tenant"]): r["moved"]
        for r in await connection.fetch(query.sql, *query.arguments(count_max=count_max, now=now))
    }


async def next_due_seconds(connection: Connection, now: datetime | None) -> float | None:
    """From now, negative if it is over; None when nothing is delayed."""
    query = SQL["next_due"]
    seconds: float | None = await connection.fetchval(query.sql, *query.arguments(now=now))
    return seconds


async def list_expired(connection: Connection, count_max: int, now: datetime | None) -> list[Action]:
    """What has a place in line whose time is over, whatever state it is in: at most twice `count_max`."""
    query = SQL["list_expired"]
    arguments = query.arguments(count_max=count_max, now=now)
    return [read_action(r) for r in await connection.fetch(query.sql, *arguments)]


async def set_expiry(connection: Connection, action: Action, expire_time_us: int | None) -> None:
    """None: never. Nothing, if it has moved since it was read."""
    query = SQL["set_expiry"]
    arguments = query.arguments(
        tenant=action.requester.tenant,
        action_id=action.action_id,
        sequence=action.sequence,
        expire_time_us=expire_time_us,
    )
    await connection.execute(query.sql, *arguments)


async def drop_orphans(connection: Connection, items: Sequence[tuple[str, str]]) -> int:
    """Of these tenants and action ids, the places whose actions are not QUEUED. How many there were."""
    query = SQL["drop_orphans"]
    count: int = await connection.fetchval(query.sql, *query.arguments(items=_items(items)))
    return count


async def set_back(connection: Connection, items: Sequence[tuple[str, str]], now: datetime | None) -> int:
    """Of these tenants and action ids, the places that stand before their actions' time. How many there were."""
    query = SQL["set_back"]
    arguments = query.arguments(items=_items(items), now=now)
    count: int = await connection.fetchval(query.sql, *arguments)
    return count


async def summarize(
    connection: Connection, tenant: str | None, now: datetime | None, *, name: str | None = None
) -> list[QueueDepth]:
    """By name, at most QUEUES_MAX of those in which something waits, and of paused ones. Tenant None: over all.

    `name`: only that queue.
    """
    query = SQL["summarize"]
    arguments = query.arguments(
        **_FIRST._asdict(), owner=tenant, name=name, count_max=COUNT_MAX, queues_max=QUEUES_MAX, now=now
    )
    return [
        QueueDepth(
            name=r["queue"],
            ready=r["ready"],
            delayed=r["delayed"],
            unroutable=r["unroutable"],
            oldest_seconds=None if r["oldest_seconds"] is None else max(0.0, r["oldest_seconds"]),
            pause_time_us=r["pause_time_us"],
            paused_reason=r["paused_reason"] or "",
            claims_per_second=r["claims_per_second"],
            settles_per_second=r["settles_per_second"],
        )
        for r in await connection.fetch(query.sql, *arguments)
    ]


def _picked(record: Record) -> Picked:
    return Picked(
        tenant=record["picked_tenant"],
        action_id=str(record["picked_id"]),
        action=None if record["action_id"] is None else read_action(record),
    )


def _items(items: Sequence[tuple[str, str]]) -> str:
    document = [{"tenant": tenant, "action_id": action_id} for tenant, action_id in items]
    return orjson.dumps(document).decode()
