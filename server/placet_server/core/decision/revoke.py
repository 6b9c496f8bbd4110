"""Somebody takes his yes back. Until the action begins: its start consumes the approval, and locks the action first as
this does, so one of the two comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from placet_server.core.decision.consume import denied
from placet_server.core.decision.decide import decided_fact, storable
from placet_server.core.decision.view import ApprovalView, CapabilityOf, Onlooker, find_approval, view_of
from placet_server.core.publication.approval_callback import decided
from placet_server.core.publication.gated import (
    Gated,
    end_approval,
    end_gated,
    ended_fact,
    lock_gated,
    tell,
    tell_others,
)
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.wake import wake_parent_of
from placet_server.model.decision import ApprovalState, Decision, VoteVerdict
from placet_server.model.errors import NotFound, StateConflict
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.store import approval as approvals
from placet_server.store import approval_move as moves
from placet_server.store.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeCommand:
    """Of the caller's own vote."""

    approval_id: str
    decision_id: str
    reason: str = ""


async def revoke(
    journal: Journal, who: Onlooker, command: RevokeCommand, capability_of: CapabilityOf
) -> ApprovalView:
    """The approval as it stands then. Sent again it changes nothing.

    Raises NotFound, MalformedRequest, StateConflict.
    """
    approval, action = await find_approval(journal, who.tenant, command.approval_id)
    storable("reason", command.reason)
    async with journal.pool.tx() as connection:
        gated = await lock_gated(connection, journal, approval)
        if gated is None:
            raise NotFound(kind="approval", name=command.approval_id)
        mine = await _find(connection, gated, who, command)
        if mine.revoke_time_us is None:
            _check(gated, mine)
            await _take_back(connection, gated, mine, command)
    journal.hub.publish(action.action_id)
    journal.callbacks.ring()
    await wake_parent_of(journal, action)
    return await view_of(journal, who, command.approval_id, capability_of)


async def _find(connection: Connection, gated: Gated, who: Onlooker, command: RevokeCommand) -> Decision:
    """Raises NotFound: also for somebody else's vote."""
    approval = gated.approval
    known = await approvals.map_decisions(connection, approval.tenant, [approval.approval_id])
    for decision in known.get(approval.approval_id, ()):
        if (decision.decision_id, decision.voter) == (command.decision_id, who.voter.subject):
            return decision
    raise NotFound(kind="decision", name=command.decision_id)


def _check(gated: Gated, mine: Decision) -> None:
    """Raises StateConflict."""
    approval = gated.approval
    is_open = approval.is_open and gated.action.state not in TERMINAL
    if not is_open or mine.verdict is not VoteVerdict.APPROVE:
        rule = "begun" if approval.consume_time_us is not None else "not_open"
        raise StateConflict(action_id=gated.action.action_id, state=approval.state.value, rule=rule)


async def _take_back(connection: Connection, gated: Gated, mine: Decision, command: RevokeCommand) -> None:
    approval = gated.approval
    is_pending = approval.state is ApprovalState.PENDING
    await moves.revoke_decision(connection, approval, mine.decision_id, gated.now)
    state = ApprovalState.PENDING if is_pending else ApprovalState.REVOKED
    await tell_others(connection, gated, decided(approval, mine, state, taken_back=True))
    fact = decided_fact(approval, mine, completes=False, taken_back=True, reason=command.reason)
    gated = await tell(connection, gated, fact)
    if is_pending:
        await moves.touch(connection, approval)
        return
    gated = await tell(connection, gated, ended_fact(gated, ApprovalState.REVOKED))
    if gated.action.state is ActionState.QUEUED:
        verdict = denied(gated.action, "REVOKED", command.reason)
        await end_gated(connection, gated, ApprovalState.REVOKED, verdict)
    else:
        # It was claimed and is about to begin: whoever has it finds this.
        await end_approval(connection, gated, ApprovalState.REVOKED)
