"""What is looked at again between a claim and the handler, under the lease: whether policies still say so, and people,
and whether whoever called it is still there."""

from __future__ import annotations

from placet_server.core.decision.consume import consume
from placet_server.core.execution.engine import Engine
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.settle import Verdict, settle
from placet_server.model.action import Action
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.outcome import EffectState
from placet_server.store import action as actions

PARENT_ENDED = "PARENT_ENDED"


async def begin(engine: Engine, action: Action) -> Action | None:
    """The running action, as it may begin; None if it has ended instead. Raises StoreUnavailable, and leaves the row
    to its ownership check.
    """
    assert engine.recheck is not None, "set when the kernel is made"
    looked = await engine.recheck.look(action)
    verdict = looked.verdict
    if looked.may_begin:
        verdict = await _allowed(engine.journal, action)
    if verdict is None:
        return action if looked.may_begin else None
    settled = await settle(engine.journal, action, verdict)
    if settled is not None:
        engine.observer.settled(settled, 0.0)
    return None


async def _allowed(journal: Journal, action: Action) -> Verdict | None:
    """None: by people, too."""
    if action.approval_id is None:
        return None
    return await _late(journal, action) or await consume(journal, action)


async def _late(journal: Journal, action: Action) -> Verdict | None:
    """What a step comes to whose first attempt would begin only after all that its parent does: people took longer to
    say yes than the parent had time.
    """
    if action.parent_id is None or action.attempt > 1:
        return None
    async with journal.pool.connection() as connection:
        parent = await actions.get(connection, action.requester.tenant, action.parent_id, full=False)
    if parent is not None and parent.state not in TERMINAL:
        return None
    effect = None if action.effect_class == "READ" else EffectState.NOT_DONE
    return Verdict(
        state=ActionState.CANCELLED, effect=effect, reason="CANCELLED_BY_CALLER", cause=PARENT_ENDED
    )
