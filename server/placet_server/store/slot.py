"""How many attempts of a capability run for a tenant, over all servers, and how many begin. One function per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from placet_server.store import queries
from placet_server.store.connection import Connection

SQL = queries.load("slot")

HOLD_SECONDS = 10.0
"""A slot is its taker's for so long, whether it runs or not: longer than any statement."""


class Held(NamedTuple):
    """A slot, and who has it."""

    capability: str
    tenant: str
    number: int
    lease_id: str


async def ensure(connection: Connection, capability: str, tenant: str, count_max: int) -> None:
    query = SQL["ensure"]
    await connection.execute(
        query.sql, *query.arguments(capability=capability, tenant=tenant, count_max=count_max)
    )


async def ensure_rate(
    connection: Connection, capability: str, tenant: str, rate_max: float, now: datetime | None
) -> None:
    query = SQL["ensure_rate"]
    arguments = query.arguments(capability=capability, tenant=tenant, rate_max=rate_max, now=now)
    await connection.execute(query.sql, *arguments)


async def take(
    connection: Connection,
    capability: str,
    tenant: str,
    *,
    count_max: int,
    holders: Sequence[tuple[str, str]],
    now: datetime | None,
) -> list[Held]:
    """`holders`: action and lease of each that wants one. Fewer come back where there are no more."""
    query = SQL["take"]
    arguments = query.arguments(
        capability=capability,
        tenant=tenant,
        count_max=count_max,
        action_ids=[action_id for action_id, _ in holders],
        lease_ids=[lease_id for _, lease_id in holders],
        hold_seconds=HOLD_SECONDS,
        now=now,
    )
    return [
        Held(capability, tenant, r["number"], str(r["lease_id"]))
        for r in await connection.fetch(query.sql, *arguments)
    ]


async def holds(connection: Connection, held: Held) -> bool:
    query = SQL["holds"]
    found: bool = await connection.fetchval(query.sql, *query.arguments(**held._asdict()))
    return found


async def release(connection: Connection, held: Sequence[Held]) -> None:
    query = SQL["release"]
    items = orjson.dumps([each._asdict() for each in held]).decode()
    await connection.execute(query.sql, *query.arguments(items=items))


async def release_lease(connection: Connection, capability: str, tenant: str, lease_id: str) -> None:
    query = SQL["release_lease"]
    arguments = query.arguments(capability=capability, tenant=tenant, lease_id=lease_id)
    await connection.execute(query.sql, *arguments)


async def charge(
    connection: Connection,
    capability: str,
    tenant: str,
    *,
    rate_max: float,
    wanted: int,
    now: datetime | None,
) -> int:
    """How many may begin now."""
    query = SQL["charge"]
    arguments = query.arguments(
        capability=capability, tenant=tenant, rate_max=rate_max, wanted=wanted, now=now
    )
    granted: int | None = await connection.fetchval(query.sql, *arguments)
    return granted or 0


async def refund(connection: Connection, capability: str, tenant: str, count: int) -> None:
    query = SQL["refund"]
    await connection.execute(query.sql, *query.arguments(capability=capability, tenant=tenant, count=count))
