"""What others are told of, and how that went. One typed function per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from asyncpg import Record

from placet_server.model.callback import Callback, Delivery, DeliveryFilter, DeliveryState, data_text
from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("callback")


COUNT_MAX = 100_001
"""What is counted is counted up to here: it says more than 100,000."""


class TargetKey(NamedTuple):
    tenant: str
    target: str


class Counts(NamedTuple):
    """`due`: of what is pending, that in nobody's hands whose time has come."""

    pending: int = 0
    due: int = 0
    dead: int = 0


async def insert(
    connection: Connection,
    callback: Callback,
    targets: Sequence[str],
    *,
    attempts_max: int,
    now: datetime | None,
) -> None:
    """One for each target that has none of this yet. Within the caller's tx."""
    # In the order of their ids, as all who insert do.
    ids = sorted((callback.delivery_id(target), target) for target in targets)
    query = SQL["insert"]
    arguments = query.arguments(
        tenant=callback.tenant,
        type=callback.type,
        subject=callback.subject,
        event_id=callback.event_id,
        action_id=callback.action_id,
        data=data_text(callback.data),
        delivery_ids=[delivery_id for delivery_id, _ in ids],
        targets=[target for _, target in ids],
        attempts_max=attempts_max,
        now=now,
    )
    await connection.execute(query.sql, *arguments)


async def map_due(
    connection: Connection, keys: Sequence[TargetKey], *, each_max: int, now: datetime | None
) -> dict[TargetKey, int]:
    """How much is due, up to `each_max`; what has nothing is left out."""
    query = SQL["list_due"]
    arguments = query.arguments(
        tenants=[key.tenant for key in keys],
        targets=[key.target for key in keys],
        each_max=each_max,
        now=now,
    )
    rows = await connection.fetch(query.sql, *arguments)
    return {TargetKey(r["tenant"], r["target"]): r["due"] for r in rows}


async def claim(
    connection: Connection,
    rooms: Mapping[TargetKey, int],
    *,
    lease_seconds: float,
    lost: str,
    now: datetime | None,
) -> list[Delivery]:
    """With what they tell. Those that come back DEAD have lost their last attempt, and `lost` says so."""
    query = SQL["claim"]
    arguments = query.arguments(
        tenants=[key.tenant for key in rooms],
        targets=[key.target for key in rooms],
        rooms=list(rooms.values()),
        lease_seconds=lease_seconds,
        lost=lost,
        now=now,
    )
    return [_read(r) for r in await connection.fetch(query.sql, *arguments)]


async def settle(
    connection: Connection,
    delivery: Delivery,
    *,
    state: DeliveryState,
    delay_seconds: float,
    last_status: int,
    last_error: str,
    now: datetime | None,
) -> DeliveryState | None:
    """How it stands now. None: the lease is somebody else's."""
    query = SQL["settle"]
    arguments = query.arguments(
        tenant=delivery.tenant,
        delivery_id=delivery.delivery_id,
        lease_id=delivery.lease_id,
        generation=delivery.generation,
        state=state.value,
        delay_seconds=delay_seconds,
        last_status=last_status,
        last_error=last_error,
        now=now,
    )
    found = await connection.fetchval(query.sql, *arguments)
    return None if found is None else DeliveryState(found)


async def give_back(connection: Connection, deliveries: Sequence[Delivery], *, now: datetime | None) -> None:
    query = SQL["give_back"]
    arguments = query.arguments(
        lease_ids=[delivery.lease_id for delivery in deliveries],
        delivery_ids=[delivery.delivery_id for delivery in deliveries],
        now=now,
    )
    await connection.execute(query.sql, *arguments)


async def bury_without_target(
    connection: Connection,
    keys: Sequence[TargetKey],
    *,
    due_seconds: float,
    last_error: str,
    count_max: int,
    now: datetime | None,
) -> int:
    """How many were given up: due for so long, and of none of these targets."""
    query = SQL["bury_without_target"]
    arguments = query.arguments(
        tenants=[key.tenant for key in keys],
        targets=[key.target for key in keys],
        due_seconds=due_seconds,
        last_error=last_error,
        count_max=count_max,
        now=now,
    )
    count: int = await connection.fetchval(query.sql, *arguments)
    return count


async def get(connection: Connection, tenant: str | None, delivery_id: str) -> Delivery | None:
    """`tenant` None: whosever it is."""
    query = SQL["get"]
    row = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, delivery_id=delivery_id))
    return None if row is None else _read(row)


async def list_page(
    connection: Connection,
    tenant: str | None,
    matching: DeliveryFilter,
    *,
    before: str | None,
    page_size: int,
) -> list[Delivery]:
    """Newest first, without what they tell. `before` is the last id of the page before; `tenant` None: of all."""
    query = SQL["list_page"]
    arguments = query.arguments(
        tenant=tenant,
        states=[state.value for state in matching.states],
        target=matching.target or None,
        action_id=matching.action_id or None,
        before=before,
        page_size=page_size,
    )
    return [_read(r) for r in await connection.fetch(query.sql, *arguments)]


async def count_open(connection: Connection, tenant: str | None, now: datetime | None) -> Counts:
    """`tenant` None: of all tenants."""
    query = SQL["count_open"]
    row = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, count_max=COUNT_MAX, now=now))
    assert row is not None
    return Counts(row["pending"], row["due"], row["dead"])


async def list_open(
    connection: Connection, tenant: str | None, *, count_max: int
) -> tuple[list[Delivery], list[Delivery]]:
    """The newest that are DEAD, and those PENDING that are due first, without what they tell. `tenant` None: of all."""
    query = SQL["list_open"]
    rows = await connection.fetch(query.sql, *query.arguments(tenant=tenant, count_max=count_max))
    found = [_read(r) for r in rows]
    dead = [each for each in found if each.state is DeliveryState.DEAD]
    return dead, [each for each in found if each.state is DeliveryState.PENDING]


async def redeliver(
    connection: Connection,
    tenant: str,
    delivery_id: str,
    *,
    attempts: int,
    redelivery: bytes,
    redelivered_by: str,
    now: datetime | None,
) -> bool:
    """False: there is none, or the same request has done it before."""
    query = SQL["redeliver"]
    arguments = query.arguments(
        tenant=tenant,
        delivery_id=delivery_id,
        attempts=attempts,
        redelivery=redelivery,
        redelivered_by=redelivered_by,
        now=now,
    )
    return await connection.fetchval(query.sql, *arguments) is not None


def _read(r: Record) -> Delivery:
    return Delivery(
        tenant=r["tenant"],
        delivery_id=str(r["delivery_id"]),
        target=r["target"],
        type=r["type"],
        subject=r["subject"],
        event_id=str(r["event_id"]),
        action_id=None if r["action_id"] is None else str(r["action_id"]),
        data=r.get("data") or "",
        state=DeliveryState(r["state"]),
        generation=r["generation"],
        attempts=r["attempts"],
        attempts_max=r["attempts_max"],
        create_time_us=r["create_time_us"],
        next_time_us=r["next_time_us"],
        end_time_us=r["end_time_us"],
        last_status=r["last_status"],
        last_error=r["last_error"],
        lease_id=None if r["lease_id"] is None else str(r["lease_id"]),
    )
