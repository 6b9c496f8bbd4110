"""What is looked at again between a claim and the handler, under the lease: whether the input is what was admitted,
whether policies still say so, and people, and whether whoever called it is still there."""

from __future__ import annotations

import hashlib

from placet_server.core.decision.consume import consume
from placet_server.core.execution.begin import Looked
from placet_server.core.execution.ending import Failed
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import judge
from placet_server.core.publication.close import end_left_over
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.settle import Verdict, settle
from placet_server.model.action import Action
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.outcome import EffectState, FailureCategory
from placet_server.store import action as actions
from placet_server.store import approval as approvals

PARENT_ENDED = "PARENT_ENDED"


async def begin(engine: Engine, action: Action, input_json: str) -> Action | None:
    """The running action, as it may begin with this input; None if it has ended instead. Raises StoreUnavailable, and
    leaves the row to its ownership check.
    """
    assert engine.recheck is not None, "set when the kernel is made"
    looked = _as_admitted(action, input_json)
    if looked.may_begin:
        is_same = action.input_json == input_json
        looked = await engine.recheck.look(action if is_same else action.changed(input_json=input_json))
    if looked.may_begin and action.approval_id is not None:
        looked = await _allowed(engine.journal, action, action.approval_id)
    if looked.may_begin:
        return action
    if looked.verdict is not None:
        settled = await settle(engine.journal, action, looked.verdict)
        if settled is not None:
            engine.observer.settled(settled, 0.0)
            await end_left_over(engine.journal, settled)
    return None


def _as_admitted(action: Action, input_json: str) -> Looked:
    """Whoever has stored it otherwise since: nothing is run but what was asked for, and shown to people."""
    digest = hashlib.sha256(input_json.encode(errors="surrogatepass")).hexdigest()
    if digest == action.input_digest:
        return Looked(may_begin=True)
    altered = Failed(
        code="input_altered",
        message="The stored input is not what was submitted.",
        category=FailureCategory.INVALID,
        effect=EffectState.NOT_DONE,
    )
    unbegun = action.changed(effect_begun=False)
    return Looked(may_begin=False, verdict=judge(unbegun, altered, now_us=action.start_time_us or 0))


async def _allowed(journal: Journal, action: Action, approval_id: str) -> Looked:
    """By people, too."""
    late = await _late(journal, action)
    return await consume(journal, action, approval_id) if late is None else Looked(False, late)


async def _late(journal: Journal, action: Action) -> Verdict | None:
    """What a step comes to that would begin under its yes only after all that its parent does: people took longer to
    say it than the parent had time.
    """
    if action.parent_id is None or action.approval_id is None:
        return None
    tenant = action.requester.tenant
    async with journal.pool.connection() as connection:
        parent = await actions.get(connection, tenant, action.parent_id, full=False)
        if parent is not None and parent.state not in TERMINAL:
            return None
        approval = await approvals.get(connection, tenant, action.approval_id)
    if approval is not None and approval.consume_time_us is not None:
        return None
    effect = None if action.effect_class == "READ" else EffectState.NOT_DONE
    return Verdict(
        state=ActionState.CANCELLED, effect=effect, reason="CANCELLED_BY_CALLER", cause=PARENT_ENDED
    )
