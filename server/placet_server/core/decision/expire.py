"""Time passes over what waits for people: it expires, more people are told, and what nobody closed after a cancel is
closed. Any number of processes may do this at once: each claims what is due for a while, so that they share it, and
each step locks, and looks again. What somebody has claimed and not come to is due again when that while is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from placet_server.core.decision.consume import denied
from placet_server.core.execution.judgement import close_verdict
from placet_server.core.publication.approval_callback import escalated
from placet_server.core.publication.close import close_queued
from placet_server.core.publication.gated import (
    Gated,
    end_approval,
    end_gated,
    ended_fact,
    left_over_state,
    lock_gated,
    tell,
    tell_others,
)
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.wake import wake_parent_of
from placet_server.model.action import Action
from placet_server.model.decision import ApprovalState
from placet_server.model.errors import StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store import approval as approvals
from placet_server.store import approval_move as moves
from placet_server.store.approval_move import Due
from placet_server.store.connection import Connection

BATCH_MAX = 200
# So many connections of the pool, at most.
AT_ONCE_MAX = 4
CLAIM_SECONDS = 10.0
_UNBEGUN = (ActionState.WAITING, ActionState.QUEUED)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What a step has done, and whether there may be more at once."""

    expired: int = 0
    escalated: int = 0
    has_more: bool = False


async def pass_time(journal: Journal) -> Passed:
    """One bounded batch of what is due. Raises StoreUnavailable if the store answers to none of it."""
    async with journal.pool.connection() as connection:
        due = await moves.claim_due(
            connection, count_max=BATCH_MAX, seconds=CLAIM_SECONDS, now=journal.clock.now()
        )
    waiting, done = iter(due), Counter[str]()
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(_work_off(journal, waiting, done)) for _ in range(AT_ONCE_MAX)]
    away = [each for each in (worker.result() for worker in workers) if each is not None]
    if len(away) == AT_ONCE_MAX:
        raise away[0]
    return Passed(expired=done["expired"], escalated=done["escalated"], has_more=len(due) == BATCH_MAX)


async def count_pending(journal: Journal) -> int:
    """What waits for people, of all tenants, counted up to a bound."""
    async with journal.pool.connection() as connection:
        return await approvals.count_pending(connection)


async def _work_off(journal: Journal, waiting: Iterator[Due], done: Counter[str]) -> StoreUnavailable | None:
    """Until nothing waits, or the store does not answer: one that somebody holds keeps nobody but this from the others,
    and a store that is away is not asked for each.
    """
    for due in waiting:
        try:
            done[await _look_in_turn(journal, due)] += 1
        except StoreUnavailable as error:
            return error
    return None


async def _look_in_turn(journal: Journal, due: Due) -> str:
    """A fault with one keeps nobody from the others, and from itself only for a while. Raises StoreUnavailable."""
    try:
        return await _look_at(journal, due)
    except StoreUnavailable:
        raise
    except Exception:
        _log.exception("an approval cannot be looked at", extra={"action_id": due.action_id})
    async with journal.pool.connection() as connection:
        await moves.put_off(connection, due, journal.clock.now())
    return ""


async def _look_at(journal: Journal, due: Due) -> str:
    """What was done: "expired", "escalated", "left over", or nothing."""
    unwanted: Action | None = None
    async with journal.pool.tx() as connection:
        gated = await lock_gated(connection, journal, due)
        if gated is None or not gated.approval.is_open:
            return ""
        if gated.action.cancel_requested_time_us is not None and gated.action.state in _UNBEGUN:
            unwanted = gated.action
            done = ""
        else:
            done = await _pass(connection, gated)
    if unwanted is not None:
        await _close(journal, unwanted)
    if done:
        journal.hub.publish(due.action_id)
        journal.callbacks.ring()
        await wake_parent_of(journal, gated.action)
    return done


async def _pass(connection: Connection, gated: Gated) -> str:
    approval = gated.approval
    if (left_over := left_over_state(gated)) is not None:
        await end_approval(connection, gated, left_over)
        return "left over"
    if gated.now_us >= approval.expire_time_us and gated.action.state is not ActionState.RUNNING:
        await _expire(connection, gated)
        return "expired"
    is_due = approval.escalate_time_us is not None and gated.now_us >= approval.escalate_time_us
    if is_due and not approval.escalated and await moves.escalate(connection, approval):
        await tell_others(connection, gated, escalated(approval))
        return "escalated"
    # Of one that was claimed, whoever has it finds that it is too late.
    await moves.look_again(connection, approval, gated.now)
    return ""


async def _expire(connection: Connection, gated: Gated) -> None:
    state = ApprovalState.EXPIRED
    if gated.action.state not in _UNBEGUN:
        # Whether it has begun is in doubt: by this approval it does not begin again.
        await end_approval(connection, gated, state)
        return
    gated = await tell(connection, gated, ended_fact(gated, state))
    await end_gated(connection, gated, state, denied(gated.action, "EXPIRED"))


async def _close(journal: Journal, action: Action) -> None:
    verdict = close_verdict(action, action.cancel_requested_time_us or 0)
    if verdict is not None and await close_queued(journal, action, verdict):
        _log.info(
            "closed an action that waited for people and was cancelled", extra={"action_id": action.action_id}
        )
