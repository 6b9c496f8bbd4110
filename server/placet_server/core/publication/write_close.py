"""The one statement that ends an action without a lease: one that is ready, or waits for people."""

from __future__ import annotations

from datetime import datetime

from placet_server.core.publication.family import with_effect
from placet_server.core.publication.lease import new_lease_id
from placet_server.core.publication.line import is_dead_letter
from placet_server.core.publication.settle import Verdict, event_of
from placet_server.model.action import Action
from placet_server.model.lifecycle import check_transition
from placet_server.store import action as actions
from placet_server.store.connection import Connection


async def write_close(connection: Connection, action: Action, verdict: Verdict, now: datetime | None) -> bool:
    """False when the action has moved since it was read."""
    check_transition(action.state, verdict.state)
    verdict = await with_effect(connection, action, verdict)
    event_type, body = event_of(action, verdict)
    return await actions.close_queued(
        connection,
        action,
        state=verdict.state,
        effect=verdict.effect,
        lease_id=new_lease_id(),
        reason=verdict.reason or "",
        cause=verdict.cause,
        message=verdict.message or None,
        failure_code=verdict.failure_code or None,
        failure_category=verdict.failure_category,
        event_type=event_type.value,
        event_body=body,
        dead_letter=is_dead_letter(action, verdict.state),
        now=now,
    )
