"""Beginning under an approval, by the lease: after the claim, before the handler is entered.

The action is locked first, then the approval is read as it is, so a vote that is taken back comes before or after. It
is consumed once, and covers all further attempts; its expiry is looked at that once. Who has lost the lease by then
does not begin: so what was not consumed has not begun, and once its lease is taken away never will under that.
"""

from __future__ import annotations

from placet_server.core.execution.begin import Looked
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action
from placet_server.model.decision import ApprovalState
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import approval as approvals
from placet_server.store import approval_move as moves

_WORDS = {ApprovalState.REVOKED: "REVOKED", ApprovalState.DENIED: "DENIED"}


async def consume(journal: Journal, action: Action, approval_id: str) -> Looked:
    """Of an action that runs here and has not begun. Raises StoreUnavailable."""
    async with journal.pool.connection() as connection:
        consumed = await moves.consume(connection, action, journal.clock.now())
        if consumed.is_consumed:
            journal.boundary.reached("approval_consumed", action.capability)
        if consumed.is_consumed or not consumed.is_held:
            return Looked(may_begin=consumed.is_consumed)
        # It may have ended while its action was waited for.
        approval = await approvals.get(connection, action.requester.tenant, approval_id)
    state = ApprovalState.EXPIRED if approval is None else approval.state
    return Looked(may_begin=False, verdict=denied(action, _WORDS.get(state, "EXPIRED")))


def denied(action: Action, how: str, message: str = "") -> Verdict:
    """How: DENIED, REVOKED or EXPIRED. Nothing of it has begun."""
    effect = None if action.effect_class == "READ" else EffectState.NOT_DONE
    return Verdict(state=ActionState.DENIED, effect=effect, reason=f"APPROVAL_{how}", message=message)
