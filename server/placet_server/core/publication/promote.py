"""Delayed actions whose time has come: into line, and whoever takes work here is told."""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.store import queue

BATCH_MAX = 500


async def promote(journal: Journal) -> bool:
    """One bounded batch. True: there may be more. Any number of processes may do this at once."""
    async with journal.pool.connection() as connection:
        moved = await queue.promote(connection, BATCH_MAX, journal.clock.now())
    for line in moved:
        journal.doorbell.ring(line)
    return sum(moved.values()) >= BATCH_MAX


async def next_due_seconds(journal: Journal) -> float | None:
    """Until the first delayed action is due, negative if it is over; None when nothing is delayed."""
    async with journal.pool.connection() as connection:
        return await queue.next_due_seconds(connection, journal.clock.now())
