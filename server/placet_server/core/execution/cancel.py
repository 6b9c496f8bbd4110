"""Somebody asks to stop."""

from __future__ import annotations

import json

from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import StopCause, close_verdict
from placet_server.core.publication.close import close_queued
from placet_server.core.publication.read import get_action
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions

CANCELLED_BATCH_MAX = 500


async def cancel_action(engine: Engine, caller: Caller, action_id: str, reason: str) -> Action:
    """Returns at once with the action as it is then: CANCELLED only if nothing ran.

    Terminal ones stay as they are. Raises NotFound.
    """
    journal = engine.journal
    body = json.dumps({"reason": reason, "requester": caller.subject}, ensure_ascii=False, sort_keys=True)
    async with journal.pool.connection() as connection:
        await actions.request_cancel(
            connection, tenant=caller.tenant, action_id=action_id, event_body=body, now=journal.clock.now()
        )
    action = await get_action(journal, caller, action_id, full=True)
    if action.state is ActionState.QUEUED:
        verdict = close_verdict(action, action.cancel_requested_time_us or 0)
        if verdict is not None:
            await close_queued(journal, action, verdict)
        action = await get_action(journal, caller, action_id, full=True)
    is_asked = action.cancel_requested_time_us is not None
    if is_asked and not deliver_cancel(engine, action_id) and action.state is ActionState.RUNNING:
        journal.relay.cancelled(action_id)
    journal.hub.publish(action_id)
    return action


async def deliver_cancels(engine: Engine) -> int:
    """Cancels that were asked for through another process."""
    told = [run.action_id for run in engine.runs if run.stop_cause is not None]
    async with engine.journal.pool.connection() as connection:
        asked = await actions.list_cancelled(
            connection, engine.journal.boot_id, told_ids=told, count_max=CANCELLED_BATCH_MAX
        )
    return sum(deliver_cancel(engine, action_id) for action_id in asked)


def deliver_cancel(engine: Engine, action_id: str) -> bool:
    """False if it does not run here, or was told before.

    Its callers wait only a bounded time for it to stop.
    """
    run = engine.runs.get(action_id)
    if run is None or run.stop_cause is not None:
        return False
    run.stop(StopCause.CANCELLED_BY_CALLER)
    run.answer_within(engine.settings.cancel_grace_seconds)
    return True
