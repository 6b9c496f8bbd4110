"""Running actions of dead boots, and ready ones that nobody may run any more.

The rescuer writes under the dead attempt's own lease, and only onto the row as it read it. So whatever the
old attempt still manages to write (a result, or the mark that it is about to touch the provider) wins if it
comes first, two rescuers cannot both take one action, and no fence but the one is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from placet_server.core.execution.cancel import cancel_below, close_with_family
from placet_server.core.execution.ending import StopCause, Stopped
from placet_server.core.execution.judgement import close_verdict, judge, withdrawn_verdict
from placet_server.core.publication.close import end_left_over
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.line import closing_time_us
from placet_server.core.publication.read import now_us
from placet_server.core.publication.settle import Verdict, settle
from placet_server.core.recovery.unbegun import fence_unbegun
from placet_server.model.action import Action
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.store import action as actions
from placet_server.store import catalog, queue
from placet_server.store import instance as instances

BATCH_MAX = 200
EXPIRED_MAX = 50

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """How many were made ready again, ambiguous, or closed."""

    requeued: int = 0
    ambiguous: int = 0
    closed: int = 0

    @property
    def actions(self) -> int:
        return self.requeued + self.ambiguous + self.closed


async def declare_dead(journal: Journal) -> int:
    """Takes the leases of silent boots, each by one compare-and-set.

    Only for who has seen the store answer for a whole lease.
    """
    won = 0
    async with journal.pool.connection() as connection:
        now = journal.clock.now()
        for boot in await instances.list_expired(connection, count_max=EXPIRED_MAX, now=now):
            if await instances.mark_dead_cas(connection, boot.boot_id, boot.heartbeat_time, now=now):
                _log.warning(
                    "boot %s on %s (pid %d) was silent for more than %g s and is declared dead",
                    boot.boot_id,
                    boot.host,
                    boot.pid,
                    boot.lease_seconds,
                )
                won += 1
    return won


async def rescue(journal: Journal) -> Rescued:
    """One bounded batch of what dead boots left running."""
    async with journal.pool.connection() as connection:
        lost = await actions.list_lost(connection, BATCH_MAX)
    return await _settle(journal, lost)


async def rescue_ownerless(journal: Journal) -> Rescued:
    """One bounded batch of what runs under boots that have no row any more, for example because somebody has deleted
    it. It looks at all that runs, so it is not for every second.
    """
    async with journal.pool.connection() as connection:
        lost = await actions.list_ownerless(connection, BATCH_MAX)
    return await _settle(journal, lost)


async def _settle(journal: Journal, lost: Sequence[Action]) -> Rescued:
    if not lost:
        return Rescued()
    now = await now_us(journal)
    for action in lost:
        # Whoever asked for that, or was about to pass it on, may be gone with the boot.
        if action.cancel_requested_time_us is not None:
            await cancel_below(journal, action)
    judged = [await _judged(journal, action, now) for action in lost]
    settled = await asyncio.gather(
        *(settle(journal, action, verdict, as_read=True) for action, verdict in judged)
    )
    moved = [action for action in settled if action is not None]
    for action in moved:
        if action.state in TERMINAL:
            await end_left_over(journal, action)
    return _count([action.state for action in moved])


async def _judged(journal: Journal, action: Action, now: int) -> tuple[Action, Verdict]:
    unbegun = await fence_unbegun(journal, action)
    if unbegun is None:
        return action, judge(action, Stopped(cause=StopCause.INSTANCE_LOST), now_us=now)
    return unbegun, judge(unbegun, Stopped(cause=StopCause.NEVER_STARTED, entered=False), now_us=now)


async def close_unwanted(journal: Journal, told: str | None = None) -> int:
    """Ready actions that nobody may begin any more; how many were closed, of the tenant that is told. A place in line
    that expired for no reason, or without an action that waits, is put right.
    """
    async with journal.pool.connection() as connection:
        expired = await queue.list_expired(connection, BATCH_MAX, journal.clock.now())
    if not expired:
        return 0
    now = await now_us(journal)
    closed = 0
    for action in expired:
        verdict = close_verdict(action, now) if action.state is ActionState.QUEUED else None
        if verdict is not None:
            is_closed = await close_with_family(journal, action, verdict)
            closed += is_closed and told in (None, action.requester.tenant)
        else:
            await _correct(journal, action)
    return closed


async def close_withdrawn(journal: Journal) -> int:
    """Ready actions whose capability was withdrawn since they were asked for; how many were closed."""
    async with journal.pool.connection() as connection:
        standing = await catalog.list_withdrawn(connection, BATCH_MAX)
    closed = 0
    for action in standing:
        if action.state is ActionState.QUEUED:
            closed += await close_with_family(journal, action, withdrawn_verdict(action))
        else:
            await _correct(journal, action)
    return closed


async def _correct(journal: Journal, action: Action) -> None:
    async with journal.pool.connection() as connection:
        if action.state is ActionState.QUEUED:
            await queue.set_expiry(connection, action, closing_time_us(action))
        else:
            await queue.drop_orphans(connection, [(action.requester.tenant, action.action_id)])


def _count(states: list[ActionState]) -> Rescued:
    requeued = states.count(ActionState.QUEUED)
    ambiguous = states.count(ActionState.AMBIGUOUS)
    return Rescued(requeued=requeued, ambiguous=ambiguous, closed=len(states) - requeued - ambiguous)
