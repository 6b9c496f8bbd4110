"""Ending an action that is not to run any more: one that is ready, or waits for people."""

from __future__ import annotations

from placet_server.core.publication.gated import (
    end_approval,
    end_gated,
    ended_fact,
    left_over_state,
    lock_gated,
    tell,
)
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.line import is_dead_letter
from placet_server.core.publication.session import pass_turn_after
from placet_server.core.publication.settle import Verdict
from placet_server.core.publication.wake import wake_parent_of
from placet_server.core.publication.write_close import write_close
from placet_server.model.action import Action
from placet_server.model.decision import ApprovalState
from placet_server.model.errors import StoreUnavailable
from placet_server.store import approval as approvals


async def close_queued(journal: Journal, action: Action, verdict: Verdict) -> bool:
    """False when the action has moved since it was read."""
    done = None if action.approval_id is None else await _withdraw(journal, action, verdict)
    if done is None:
        async with journal.pool.connection() as connection:
            done = await write_close(connection, action, verdict, journal.clock.now())
    if done and is_dead_letter(action, verdict.state):
        journal.note_dead(action.queue, verdict.reason or "")
    journal.hub.publish(action.action_id)
    if action.approval_id is not None:
        journal.callbacks.ring()
    if done:
        await wake_parent_of(journal, action)
        await pass_turn_after(journal, action)
    return done


async def _withdraw(journal: Journal, action: Action, verdict: Verdict) -> bool | None:
    """The same with its approval, which nobody need decide any more. None: that is not open."""
    tenant, approval_id = action.requester.tenant, action.approval_id or ""
    async with journal.pool.tx() as connection:
        approval = await approvals.get(connection, tenant, approval_id)
        gated = None if approval is None else await lock_gated(connection, journal, approval)
        if gated is None or not gated.approval.is_open:
            return None
        if gated.action.sequence != action.sequence:
            return False
        gated = await tell(connection, gated, ended_fact(gated, ApprovalState.WITHDRAWN))
        await end_gated(connection, gated, ApprovalState.WITHDRAWN, verdict)
    return True


async def end_left_over(journal: Journal, action: Action) -> None:
    """Of an action that has ended, and has not begun under its approval: nobody need keep that open. What this does not
    come to the expirer does.
    """
    if action.approval_id is None:
        return
    try:
        async with journal.pool.tx() as connection:
            approval = await approvals.get(connection, action.requester.tenant, action.approval_id)
            gated = None if approval is None else await lock_gated(connection, journal, approval)
            state = None if gated is None else left_over_state(gated)
            if gated is None or state is None:
                return
            await end_approval(connection, gated, state)
    except StoreUnavailable:
        return
    journal.callbacks.ring()
