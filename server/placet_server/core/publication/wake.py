"""Parents that wait for their steps: ready again once one of them has ended.

Whoever has committed the end of a step, or has parked a parent, looks here; 0029_wakes.sql says why neither can miss
the other. What a look cannot do, because the store is away or the process ends, the sweep does.
"""

from __future__ import annotations

from collections.abc import Sequence

from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.store import wake as wakes
from placet_server.store.wake import Parent

BATCH_MAX = 500
# Younger rows are mostly of parents that still run.
LEFT_OVER_SECONDS = 10.0


async def wake_parents(journal: Journal, parents: Sequence[Parent]) -> int:
    """After the commit. How many of them are ready by this; whoever takes work is told."""
    if not parents:
        return 0
    try:
        async with journal.pool.connection() as connection:
            woken = await wakes.wake(connection, parents, journal.clock.now())
    except StoreUnavailable:
        return 0
    for action_id, line in woken:
        journal.hub.publish(action_id)
        journal.doorbell.ring(line)
    return len(woken)


async def wake_parent_of(journal: Journal, child: Action) -> None:
    """After the commit that has ended it, or has left it in doubt for good."""
    if child.parent_id is not None:
        await wake_parents(journal, [Parent(child.requester.tenant, child.parent_id)])


async def sweep(journal: Journal) -> bool:
    """One bounded batch of whom nobody has woken. True: there may be more. Any number of processes may do this."""
    async with journal.pool.connection() as connection:
        parents = await wakes.list_parents(connection, BATCH_MAX)
    woken = await wake_parents(journal, parents)
    return woken == BATCH_MAX


async def drop_left_over(journal: Journal) -> bool:
    """One bounded batch of rows that wake nobody any more. True: there may be more."""
    async with journal.pool.connection() as connection:
        gone = await wakes.drop_left_over(
            connection, age_seconds=LEFT_OVER_SECONDS, count_max=BATCH_MAX, now=journal.clock.now()
        )
    return gone == BATCH_MAX
