"""Somebody asks to stop: an action, and all that it has called.

The mark is set top down, and no child is admitted under a parent that has it. So whoever finds no open descendant
without a mark has told them all. It is looked for by whoever asks, by the process that runs the action when it stops,
and by whoever closes or rescues it; always before the action itself ends, so that somebody is left to do it.

What only waits is ended bottom up, because the end of what is COMPOSED says what its steps have come to.
"""

from __future__ import annotations

import json

from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import close_verdict
from placet_server.core.publication.close import close_queued
from placet_server.core.publication.for_sure import for_sure
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import get_action
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store import lineage

CANCELLED_BATCH_MAX = 500
_WAIT = frozenset({ActionState.QUEUED, ActionState.WAITING})


async def cancel_action(engine: Engine, caller: Caller, action_id: str, reason: str) -> Action:
    """Returns with the action as it is then: CANCELLED only if nothing ran. What it has called is asked to stop, too.

    Terminal ones stay as they are. Raises NotFound.
    """
    journal = engine.journal
    await _mark(journal, caller.tenant, action_id, caller.subject, reason)
    action = await get_action(journal, caller, action_id, full=True)
    if action.cancel_requested_time_us is not None:
        _tell(journal, action, engine)
        await cancel_below(journal, action, requester=caller.subject, reason=reason, engine=engine)
    if await _close(journal, action):
        action = await get_action(journal, caller, action_id, full=True)
    journal.hub.publish(action_id)
    return action


async def cancel_below(
    journal: Journal, action: Action, *, requester: str = "", reason: str = "", engine: Engine | None = None
) -> int:
    """Asks all open descendants to stop that nobody has asked yet; how many. Those that run here are told at once by
    who has an `engine`.
    """
    tenant, count = action.requester.tenant, 0
    requester = requester or action.requester.subject
    reason = reason or f"{action.action_id} is not wanted any more"
    waiting: list[str] = []
    while True:
        async with journal.pool.connection() as connection:
            below = await lineage.list_open_below(
                connection, tenant, action.action_id, count_max=CANCELLED_BATCH_MAX
            )
        for child_id in below:
            if await _ask_one(journal, tenant, child_id, requester, reason, engine):
                waiting.append(child_id)
        count += len(below)
        if not below:
            break
    for child_id in reversed(waiting):
        await _close_one(journal, tenant, child_id, engine)
    return count


async def cancel_below_for_sure(engine: Engine, action: Action) -> None:
    """Of an attempt that nobody wants any more, and that is about to be settled: however long the store is away."""
    await for_sure(engine.journal, lambda: cancel_below(engine.journal, action, engine=engine))


async def _ask_one(
    journal: Journal, tenant: str, action_id: str, requester: str, reason: str, engine: Engine | None
) -> bool:
    """Whether it only waits, and may have called others."""
    await _mark(journal, tenant, action_id, requester, reason)
    async with journal.pool.connection() as connection:
        action = await actions.get(connection, tenant, action_id, full=False)
    if action is not None and action.attempt > 0 and action.state in _WAIT:
        return True
    await _close_or_tell(journal, action, action_id, engine)
    return False


async def _close_one(journal: Journal, tenant: str, action_id: str, engine: Engine | None) -> None:
    async with journal.pool.connection() as connection:
        action = await actions.get(connection, tenant, action_id, full=False)
    await _close_or_tell(journal, action, action_id, engine)


async def _close_or_tell(
    journal: Journal, action: Action | None, action_id: str, engine: Engine | None
) -> None:
    if action is not None and not await _close(journal, action):
        _tell(journal, action, engine)
    journal.hub.publish(action_id)


def cancel_body(requester: str, reason: str) -> str:
    """Of the event."""
    return json.dumps({"reason": reason, "requester": requester}, ensure_ascii=False, sort_keys=True)


async def _mark(journal: Journal, tenant: str, action_id: str, requester: str, reason: str) -> None:
    body = cancel_body(requester, reason)
    async with journal.pool.connection() as connection:
        await actions.request_cancel(
            connection, tenant=tenant, action_id=action_id, event_body=body, now=journal.clock.now()
        )


async def _close(journal: Journal, action: Action) -> bool:
    """Ends one that waits for a server or for people, as nobody is to run it."""
    if action.state not in _WAIT:
        return False
    verdict = close_verdict(action, action.cancel_requested_time_us or 0)
    if verdict is None:
        return False
    await close_queued(journal, action, verdict)
    return True


async def close_with_family(journal: Journal, action: Action, verdict: Verdict) -> bool:
    """Ends a ready action that is not to run any more: what it has called first, if nobody wants it. False when it has
    moved since it was read.
    """
    asked = action.cancel_requested_time_us is not None
    if action.attempt > 0 and (asked or verdict.state is ActionState.CANCELLED):
        await cancel_below(journal, action)
    return await close_queued(journal, action, verdict)


def _tell(journal: Journal, action: Action, engine: Engine | None) -> None:
    if engine is not None and deliver_cancel(engine, action.action_id):
        return
    if action.state is ActionState.RUNNING:
        journal.relay.cancelled(action.action_id)


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
