"""Queues that begin nothing for a while. What runs goes on, what comes is stored, and what is due waits.

The statements that claim look whether the queue is paused; so no server begins anything of it once the pause is stored,
whatever it knows. How long an action may wait (`queue_delay_max`) runs on.
"""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import check_text
from placet_server.model.caller import Caller
from placet_server.model.errors import Overloaded
from placet_server.store import queue, queue_pause
from placet_server.store.queue import QueueDepth


async def pause_queue(
    journal: Journal, caller: Caller, name: str, *, tenant: str | None, reason: str
) -> QueueDepth:
    """`tenant` None: for all. A second time only the reason changes. Raises Overloaded if too many are paused."""
    check_text(name, reason)
    async with journal.pool.connection() as connection:
        paused = await queue_pause.pause(
            connection, name, tenant, paused_by=caller.subject, reason=reason, now=journal.clock.now()
        )
    if not paused:
        raise Overloaded(limit="paused_queues", limit_max=queue_pause.PAUSES_MAX)
    return await _queue(journal, name, tenant)


async def resume_queue(journal: Journal, name: str, *, tenant: str | None) -> QueueDepth:
    """Takes back that tenant's pause, or with None that of all tenants; the other one stays."""
    check_text(name)
    async with journal.pool.connection() as connection:
        await queue_pause.resume(connection, name, tenant)
    journal.doorbell.wake_to_look()
    return await _queue(journal, name, tenant)


async def _queue(journal: Journal, name: str, tenant: str | None) -> QueueDepth:
    async with journal.pool.connection() as connection:
        found = await queue.summarize(connection, tenant, journal.clock.now(), name=name)
    return found[0] if found else QueueDepth(name=name, ready=0, delayed=0, unroutable=0, oldest_seconds=None)
