"""Attempts of contracts that are limited over all servers: a slot first, then the row that runs in it.

A slot is held for ten seconds whether its row is written or not. Who was slower looks, after the write, whether it has
the slot still; if not, the row is left to the ownership check, as one that nobody runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from placet_server.core.admission.pipeline import Checked
from placet_server.core.admission.reserve import reserve
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.slot import give_back, grant, take_slot
from placet_server.core.publication.lease import new_lease_id
from placet_server.model.action import Action
from placet_server.model.capability import Capability
from placet_server.model.errors import StoreUnavailable
from placet_server.store import queue, slot
from placet_server.store.pool import Pool
from placet_server.store.queue import LineShare, Picked
from placet_server.store.slot import HOLD_SECONDS, Held


class Granted(NamedTuple):
    """What a claim got, and the slots of what runs, by lease. `is_full`: there was more that may not begin now."""

    picked: list[Picked]
    held: dict[str, Held]
    is_full: bool


async def reserve_in_slot(
    engine: Engine, checked: Checked, action_id: str, predecessor: Action | None, lease_id: str
) -> Action | None:
    """As `reserve` does. Raises Overloaded before anything is written."""
    write = partial(reserve, engine.journal, checked, action_id, predecessor, lease_id)
    return await in_slot(engine, checked.capability, checked.call.caller.tenant, action_id, lease_id, write)


async def in_slot(
    engine: Engine,
    capability: Capability,
    tenant: str,
    action_id: str,
    lease_id: str,
    write: Callable[[], Awaitable[Action | None]],
) -> Action | None:
    """What `write` writes under this lease, in a slot that is given back when the run's task, this one, has ended."""
    journal, loop = engine.journal, asyncio.get_running_loop()
    begin = loop.time()
    held = await take_slot(engine.slots, journal, capability, tenant, action_id, lease_id)
    task = asyncio.current_task()
    if held is not None and task is not None:
        engine.slots.give_back_after(engine.supervisor, journal, task, held)
    action = await write()
    if action is None:
        await _refund(engine, capability, tenant)
    elif held is not None and loop.time() - begin > HOLD_SECONDS / 2:
        async with journal.pool.connection() as connection:
            if not await slot.holds(connection, held):
                raise StoreUnavailable(detail="too late for its slot")
    return action


async def _refund(engine: Engine, capability: Capability, tenant: str) -> None:
    """Who only found the action that its key has did not begin."""
    if capability.contract.limits.rate_max is None:
        return
    async with engine.journal.pool.connection() as connection:
        await slot.refund(connection, capability.name, tenant, 1)


async def claim_in_slots(
    engine: Engine, pool: Pool, capability: Capability, share: LineShare, *, input_bytes_max: int
) -> Granted:
    """Of one line as much as the contract lets begin now, in one tx."""
    journal, line, limits = engine.journal, share.line, capability.contract.limits
    await engine.slots.prepare(journal, limits, line.capability, line.tenant)
    async with pool.tx() as connection:
        first = await queue.peek(connection, share)
        holders = [(action_id, new_lease_id()) for action_id in first]
        leases, held = await grant(connection, journal, limits, line.capability, line.tenant, holders)
        granted = [holder for holder in holders if holder[1] in leases]
        if not granted:
            return Granted([], {}, is_full=bool(first))
        picked = await queue.claim_given(
            connection,
            share,
            granted,
            boot_id=journal.boot_id,
            input_bytes_max=input_bytes_max,
            now=journal.clock.now(),
        )
        running = {each.action.lease_id for each in picked if each.action is not None}
        await give_back(connection, [each for each in held if each.lease_id not in running])
    by_lease = {each.lease_id: each for each in held if each.lease_id in running}
    return Granted(picked, by_lease, is_full=len(granted) < len(first))
