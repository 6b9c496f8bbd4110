"""Beginning under an approval, by the lease: after the claim, before the handler is entered.

The action is locked first, then the approval is read as it is, so a vote that is taken back comes before or after. It
is consumed once, and covers all further attempts; its expiry is looked at that once.
"""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action
from placet_server.model.decision import ApprovalState
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import approval as approvals

_WORDS = {ApprovalState.REVOKED: "REVOKED", ApprovalState.DENIED: "DENIED"}


async def consume(journal: Journal, action: Action) -> Verdict | None:
    """Of an action that runs here and has not begun: None if it may, or has lost its lease, which its writes will find;
    else what it comes to. Raises StoreUnavailable.
    """
    if action.approval_id is None:
        return None
    async with journal.pool.connection() as connection:
        consumed = await approvals.consume(connection, action, journal.clock.now())
    if consumed.is_consumed or not consumed.is_held:
        return None
    return denied(action, _WORDS.get(consumed.state or ApprovalState.EXPIRED, "EXPIRED"))


def denied(action: Action, how: str, message: str = "") -> Verdict:
    """How: DENIED, REVOKED or EXPIRED. Nothing of it has begun."""
    effect = None if action.effect_class == "READ" else EffectState.NOT_DONE
    return Verdict(state=ActionState.DENIED, effect=effect, reason=f"APPROVAL_{how}", message=message)
