"""Asking all actions that match to stop, a page at a time.

Marks are what counts: they are durable, and no statement that claims takes what has one. So a page is marked by few
statements, which pass over what somebody holds right now; that is marked alone, waiting for it. What it has called
follows, and then what is marked and waits in line is ended at once; what that does not end, as the sweep was first or
somebody held it, is looked at alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placet_server.core.execution.cancel import cancel_action, cancel_below, cancel_body, deliver_cancel
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.judgement import close_verdict
from placet_server.core.publication.close import close_queued
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_lease_id
from placet_server.core.publication.read import list_actions
from placet_server.core.publication.settle import event_of
from placet_server.core.publication.wake import wake_parents
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.lifecycle import TERMINAL, ActionState, check_transition
from placet_server.model.query import ActionQuery
from placet_server.store import action as actions
from placet_server.store.action import Closing, Marked
from placet_server.store.wake import Parent

OPEN = tuple(state for state in ActionState if state not in TERMINAL)
UNBEGUN = (ActionState.QUEUED, ActionState.WAITING)
# So that no statement takes long, nor holds many rows.
MARKS_MAX = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """How many of a page were open and matched; of these were asked to stop by this; and of these have ended."""

    matched: int
    marked: int
    ended: int
    next_after_action_id: str = ""


async def cancel_many(
    engine: Engine, caller: Caller, query: ActionQuery, reason: str, *, validate_only: bool
) -> Cancelled:
    """One page, newest first. Raises MalformedRequest for text that no action can have."""
    states = tuple(state for state in query.states or OPEN if state in OPEN)
    if not states:
        return Cancelled(matched=0, marked=0, ended=0)
    page = await list_actions(engine.journal, caller, replace(query, states=states))
    marked = ended = 0
    if not validate_only:
        new = [action for action in page.actions if action.cancel_requested_time_us is None]
        for begin in range(0, len(new), MARKS_MAX):
            asked, over = await _cancel(engine, caller, new[begin : begin + MARKS_MAX], reason)
            marked, ended = marked + asked, ended + over
    return Cancelled(
        matched=len(page.actions),
        marked=marked,
        ended=ended,
        next_after_action_id=page.next_after_action_id,
    )


async def _cancel(engine: Engine, caller: Caller, some: Sequence[Action], reason: str) -> tuple[int, int]:
    journal = engine.journal
    async with journal.pool.connection() as connection:
        marks = await actions.request_cancel_many(
            connection,
            tenant=caller.tenant,
            action_ids=[action.action_id for action in some],
            event_body=cancel_body(caller.subject, reason),
            now=journal.clock.now(),
        )
    for action_id, mark in marks.items():
        if not deliver_cancel(engine, action_id) and mark.state is ActionState.RUNNING:
            journal.relay.cancelled(action_id)
    for action in (
        action for action in some if action.action_id in marks and _may_have_called(action, marks)
    ):
        await cancel_below(journal, action, requester=caller.subject, reason=reason, engine=engine)
    marked = len(marks)
    ended, missed = await _close(journal, caller, some, marks)
    for action_id in marks:
        journal.hub.publish(action_id)
    for action_id in (each.action_id for each in some if each.action_id not in marks):
        left = await cancel_action(engine, caller, action_id, reason)
        marked += left.cancel_requested_time_us is not None
        ended += left.state is ActionState.CANCELLED
    for action_id in missed:
        left = await cancel_action(engine, caller, action_id, reason)
        ended += left.state is ActionState.CANCELLED
    return marked, ended


def _may_have_called(action: Action, marks: dict[str, Marked]) -> bool:
    return action.attempt > 0 or marks[action.action_id].state is ActionState.RUNNING


async def _close(
    journal: Journal, caller: Caller, some: Sequence[Action], marks: dict[str, Marked]
) -> tuple[int, list[str]]:
    """Of those that wait and have not moved since they were read, but for the mark: how many it has ended, and which
    of them had moved since."""
    items, closed_alone = [], 0
    for action in some:
        mark = marks.get(action.action_id)
        if mark is None or mark.state not in UNBEGUN or mark.sequence != action.sequence + 1:
            continue
        read = action.changed(sequence=mark.sequence, cancel_requested_time_us=mark.time_us)
        verdict = close_verdict(read, mark.time_us)
        if verdict is None:
            continue
        if read.approval_id is not None or read.effect_class == "COMPOSED":
            closed_alone += await close_queued(journal, read, verdict)
            continue
        check_transition(read.state, verdict.state)
        event_type, body = event_of(read, verdict)
        items.append(
            Closing(
                action_id=read.action_id,
                sequence=read.sequence,
                lease_id=new_lease_id(),
                state=verdict.state.value,
                reason=verdict.reason,
                cause=verdict.cause,
                event_type=event_type.value,
                event_body=body,
            )
        )
    if not items:
        return closed_alone, []
    async with journal.pool.connection() as connection:
        closed = await actions.close_many(
            connection, tenant=caller.tenant, items=items, now=journal.clock.now()
        )
    parents = {each.parent_id for each in some if each.action_id in closed and each.parent_id is not None}
    await wake_parents(journal, [Parent(caller.tenant, parent_id) for parent_id in sorted(parents)])
    return len(closed) + closed_alone, [
        item["action_id"] for item in items if item["action_id"] not in closed
    ]
