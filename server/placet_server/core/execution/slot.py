"""What a contract allows at once and in a second, for a tenant over all servers: taken before an attempt is written,
given back when it has ended.

Nothing depends on giving back: a slot whose holder does not run any more is free. It only spares the next taker ten
seconds after an attempt that goes back into line. Contracts without such limits never come here."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

from placet.supervisor import Supervisor
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.capability import Capability
from placet_server.model.contract import Limits
from placet_server.model.errors import Overloaded, PlacetError, StoreUnavailable
from placet_server.store import slot
from placet_server.store.connection import Connection
from placet_server.store.slot import Held

KNOWN_MAX = 4096
RELEASES_MAX = 200
RETAKE_SECONDS = 0.1
RATE_PAUSE_SECONDS_MAX = 60.0

_log = logging.getLogger(__name__)


def _unheard(capability: str, tenant: str) -> None:
    """Nobody waits."""


class Slots:
    """Belongs to one event loop. `freed` is told when a slot may be free, by capability and tenant."""

    def __init__(self) -> None:
        self.freed: Callable[[str, str], None] = _unheard
        self._known: set[tuple[str, str, Limits]] = set()
        self._left: list[Held] = []
        self._releasing: asyncio.Task[None] | None = None

    async def prepare(self, journal: Journal, limits: Limits, capability: str, tenant: str) -> None:
        """Makes the rows that are taken from, once; in no tx, as making them may wait for who makes them too."""
        key = (capability, tenant, limits)
        if key in self._known:
            return
        async with journal.pool.connection() as connection:
            if limits.concurrency_max is not None:
                await slot.ensure(connection, capability, tenant, limits.concurrency_max)
            if limits.rate_max is not None:
                now = journal.clock.now()
                await slot.ensure_rate(connection, capability, tenant, limits.rate_max, now)
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known.add(key)

    def give_back_after(
        self, supervisor: Supervisor, journal: Journal, task: asyncio.Task[object], held: Held
    ) -> None:
        """Once the task has ended, whatever came of it. One that was cancelled from outside is a process that ends."""

        def ended(task: asyncio.Task[object]) -> None:
            if task.cancelled():
                return
            self._left.append(held)
            if self._releasing is None or self._releasing.done():
                self._releasing = supervisor.start(self._release_left(journal))

        task.add_done_callback(ended)

    async def _release_left(self, journal: Journal) -> None:
        while self._left:
            batch, self._left = self._left[:RELEASES_MAX], self._left[RELEASES_MAX:]
            try:
                async with journal.pool.connection() as connection:
                    await slot.release(connection, batch)
            except PlacetError:
                _log.warning("%d slots are left to be found free", len(batch))
            for capability, tenant in {(held.capability, held.tenant) for held in batch}:
                self.freed(capability, tenant)


async def take_slot(
    slots: Slots, journal: Journal, capability: Capability, tenant: str, action_id: str, lease_id: str
) -> Held | None:
    """For an attempt that is about to be written; None if only its rate is limited. Raises Overloaded."""
    limits = capability.contract.limits
    await slots.prepare(journal, limits, capability.name, tenant)
    is_both = limits.concurrency_max is not None and limits.rate_max is not None
    async with journal.pool.tx() if is_both else journal.pool.connection() as connection:
        held = await _take(connection, journal, limits, capability.name, tenant, [(action_id, lease_id)])
        if limits.concurrency_max is not None and not held:
            raise Overloaded(limit="capability_slots", limit_max=limits.concurrency_max)
        # Who gets no start has no slot either: the tx is undone.
        if limits.rate_max is not None and not await _charge(
            connection, journal, limits, capability.name, tenant, 1
        ):
            raise _too_fast(limits.rate_max)
    return held[0] if held else None


async def grant(
    connection: Connection,
    journal: Journal,
    limits: Limits,
    capability: str,
    tenant: str,
    holders: Sequence[tuple[str, str]],
) -> tuple[list[str], list[Held]]:
    """In the tx of a claim: the leases of those `holders`, by action and lease, that may begin; and their slots."""
    held = await _take(connection, journal, limits, capability, tenant, holders)
    leases = [lease_id for _, lease_id in holders]
    if limits.concurrency_max is not None:
        mine = {each.lease_id for each in held}
        leases = [lease_id for lease_id in leases if lease_id in mine]
    if limits.rate_max is not None and leases:
        count = await _charge(connection, journal, limits, capability, tenant, len(leases))
        leases = leases[:count]
        kept = set(leases)
        await give_back(connection, [each for each in held if each.lease_id not in kept])
        held = [each for each in held if each.lease_id in kept]
    return leases, held


async def give_back(connection: Connection, held: Sequence[Held]) -> None:
    if held:
        await slot.release(connection, held)


async def release_slot(journal: Journal, capability: Capability, action: Action) -> None:
    """While a running attempt waits for another action, the work of others may run."""
    if capability.contract.limits.concurrency_max is None:
        return
    async with journal.pool.connection() as connection:
        await slot.release_lease(connection, capability.name, action.requester.tenant, action.lease_id or "")


async def retake_slot(
    journal: Journal, capability: Capability, action: Action, is_wanted: Callable[[], bool] = lambda: True
) -> None:
    """Waits for a slot for an attempt that goes on, as long as it is wanted. Costs no start."""
    count_max = capability.contract.limits.concurrency_max
    if count_max is None:
        return
    holder = (action.action_id, action.lease_id or "")
    while is_wanted():
        async with journal.pool.connection() as connection:
            held = await slot.take(
                connection,
                capability.name,
                action.requester.tenant,
                count_max=count_max,
                holders=[holder],
                now=journal.clock.now(),
            )
        if held:
            return
        await asyncio.sleep(RETAKE_SECONDS)


class SlotHolding:
    """Of one attempt, which gives its slot back while it waits for a child. `is_wanted`: it may go on; one that may not
    ends without its slot, or whoever has that would keep it from ending."""

    def __init__(
        self, journal: Journal, capability: Capability, action: Action, is_wanted: Callable[[], bool]
    ) -> None:
        self._journal = journal
        self._capability = capability
        self._action = action
        self._is_wanted = is_wanted

    async def lend(self) -> None:
        while True:
            try:
                await self._release()
                return
            except StoreUnavailable:
                if not self._is_wanted():
                    raise
                await asyncio.sleep(RETAKE_SECONDS)

    async def take_back(self) -> None:
        may_have_one = False
        while self._is_wanted():
            try:
                if may_have_one:
                    await self._release()
                await retake_slot(self._journal, self._capability, self._action, self._is_wanted)
                return
            except StoreUnavailable:
                # It may have been taken, and its answer lost.
                may_have_one = True
                await asyncio.sleep(RETAKE_SECONDS)

    async def _release(self) -> None:
        await release_slot(self._journal, self._capability, self._action)


async def _take(
    connection: Connection,
    journal: Journal,
    limits: Limits,
    capability: str,
    tenant: str,
    holders: Sequence[tuple[str, str]],
) -> list[Held]:
    if limits.concurrency_max is None:
        return []
    return await slot.take(
        connection,
        capability,
        tenant,
        count_max=limits.concurrency_max,
        holders=holders,
        now=journal.clock.now(),
    )


async def _charge(
    connection: Connection, journal: Journal, limits: Limits, capability: str, tenant: str, wanted: int
) -> int:
    assert limits.rate_max is not None
    return await slot.charge(
        connection, capability, tenant, rate_max=limits.rate_max, wanted=wanted, now=journal.clock.now()
    )


def _too_fast(rate_max: float) -> Overloaded:
    pause = min(RATE_PAUSE_SECONDS_MAX, max(RETAKE_SECONDS, 1.0 / rate_max))
    return Overloaded(
        limit="capability_rate", limit_max=max(1, math.ceil(rate_max)), retry_delay_seconds=pause
    )
