"""Who called whom. One typed function per query; what admits children is `batch.py`'s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placet_server.model.action import Action
from placet_server.model.outcome import EffectState
from placet_server.store import queries
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

SQL = queries.load("lineage")

DEPTH_MAX = 16
"""A child so deep below its root calls nobody."""


class Tried(NamedTuple):
    """A try of a step: the child, the number of the try, and the parent's generation and attempt when it called."""

    action: Action
    number: int
    generation: int
    attempt: int


async def find_step(connection: Connection, tenant: str, parent_id: str, step: str) -> Tried | None:
    """Its newest try, without payloads."""
    query = SQL["find_step"]
    r = await connection.fetchrow(query.sql, *query.arguments(tenant=tenant, parent_id=parent_id, step=step))
    return (
        None if r is None else Tried(read_action(r), r["number"], r["parent_generation"], r["parent_attempt"])
    )


async def find_effect(connection: Connection, tenant: str, parent_id: str) -> EffectState:
    """What is known of what the steps of an action have done."""
    query = SQL["effect_of_steps"]
    return EffectState(
        await connection.fetchval(query.sql, *query.arguments(tenant=tenant, parent_id=parent_id))
    )


async def list_acted(connection: Connection, tenant: str, action_ids: Sequence[str]) -> frozenset[str]:
    """Which of these open COMPOSED actions have steps that may have done something, at whatever depth."""
    query = SQL["list_acted"]
    arguments = query.arguments(tenant=tenant, action_ids=list(action_ids))
    return frozenset(str(r["action_id"]) for r in await connection.fetch(query.sql, *arguments))


async def find_depth(connection: Connection, tenant: str, parent_id: str, action_id: str) -> int:
    """How many ancestors a child has."""
    query = SQL["depth"]
    arguments = query.arguments(tenant=tenant, parent_id=parent_id, action_id=action_id)
    depth: int | None = await connection.fetchval(query.sql, *arguments)
    return depth or 0


async def list_open_below(
    connection: Connection, tenant: str, action_id: str, *, count_max: int
) -> list[str]:
    """Open descendants that nobody has asked to cancel, parents before their children."""
    query = SQL["list_open_below"]
    arguments = query.arguments(tenant=tenant, action_id=action_id, count_max=count_max)
    return [str(r["action_id"]) for r in await connection.fetch(query.sql, *arguments)]
