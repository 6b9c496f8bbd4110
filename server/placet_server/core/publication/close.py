"""Ending a ready action that is not to run any more."""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_lease_id
from placet_server.core.publication.line import is_dead_letter
from placet_server.core.publication.settle import Verdict, event_of
from placet_server.model.action import Action
from placet_server.model.lifecycle import check_transition
from placet_server.store import action as actions


async def close_queued(journal: Journal, action: Action, verdict: Verdict) -> bool:
    """False when the action has moved since it was read."""
    check_transition(action.state, verdict.state)
    event_type, body = event_of(action, verdict)
    is_dead = is_dead_letter(action, verdict.state)
    async with journal.pool.connection() as connection:
        done = await actions.close_queued(
            connection,
            action,
            state=verdict.state,
            lease_id=new_lease_id(),
            reason=verdict.reason or "",
            cause=verdict.cause,
            message=verdict.message or None,
            failure_code=verdict.failure_code or None,
            failure_category=verdict.failure_category,
            event_type=event_type.value,
            event_body=body,
            dead_letter=is_dead,
            now=journal.clock.now(),
        )
    if done and is_dead:
        journal.note_dead(action.queue, verdict.reason or "")
    journal.hub.publish(action.action_id)
    return done
