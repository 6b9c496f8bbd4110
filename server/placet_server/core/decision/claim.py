"""Somebody says that he is looking at an approval, so that others look at other ones. It expires by itself, and keeps
nobody from deciding.
"""

from __future__ import annotations

from placet_server.core.decision.view import (
    ApprovalView,
    CapabilityOf,
    Onlooker,
    find_approval,
    view_of,
)
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import now_us
from placet_server.model.action import Action
from placet_server.model.decision import Approval, ApprovalState
from placet_server.model.decision_errors import NotEligible
from placet_server.model.errors import StateConflict
from placet_server.store import approval as approvals

CLAIM_SECONDS_DEFAULT = 600.0


async def claim(
    journal: Journal, who: Onlooker, approval_id: str, seconds: float, capability_of: CapabilityOf
) -> ApprovalView:
    """A claim of one's own is prolonged. Raises NotFound, NotEligible, StateConflict."""
    approval, action = await find_approval(journal, who.tenant, approval_id)
    now = await now_us(journal)
    _check_pending(approval, action, now)
    problem = who.problem(approval, action, await capability_of(action), now)
    if problem is not None:
        raise NotEligible(approval_id=approval_id, problem=problem.value)
    async with journal.pool.connection() as connection:
        done = await approvals.claim(connection, approval, who.voter.subject, seconds, journal.clock.now())
    view = await view_of(journal, who, approval_id, capability_of)
    if not done:
        _check_pending(view.approval, action, await now_us(journal))
        raise _claimed(action)
    return view


async def release(
    journal: Journal, who: Onlooker, approval_id: str, capability_of: CapabilityOf
) -> ApprovalView:
    """Nothing to do if nobody has it. Raises NotFound, StateConflict."""
    approval, action = await find_approval(journal, who.tenant, approval_id)
    async with journal.pool.connection() as connection:
        done = await approvals.release(connection, approval, who.voter.subject)
    view = await view_of(journal, who, approval_id, capability_of)
    if not done and view.approval.claimed_by:
        raise _claimed(action)
    return view


def _check_pending(approval: Approval, action: Action, now: int) -> None:
    if approval.state is not ApprovalState.PENDING or now >= approval.expire_time_us:
        state = ApprovalState.EXPIRED if approval.state is ApprovalState.PENDING else approval.state
        raise StateConflict(action_id=action.action_id, state=state.value, rule="not_pending")


def _claimed(action: Action) -> StateConflict:
    return StateConflict(
        action_id=action.action_id, state=ApprovalState.PENDING.value, rule="claimed_by_other"
    )
