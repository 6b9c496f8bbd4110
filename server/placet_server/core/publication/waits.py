"""What an action waits for, read beside it."""

from __future__ import annotations

from collections.abc import Sequence

from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.decision import Approval
from placet_server.model.lifecycle import ActionState
from placet_server.store import approval as approvals


async def with_waits(journal: Journal, action: Action) -> Action:
    """With its open wait, if it has one."""
    if action.state is not ActionState.WAITING or action.waits or action.is_parked:
        return action
    return (await all_with_waits(journal, action.requester.tenant, [action]))[0]


async def with_family_waits(journal: Journal, action: Action) -> Action:
    """With those of what it has called, too: for who is told how it stands."""
    calls = action.state in (ActionState.RUNNING, ActionState.QUEUED) or action.is_parked
    if not calls or action.attempt == 0:
        return await with_waits(journal, action)
    async with journal.pool.connection() as connection:
        waits = await approvals.list_below(connection, action.requester.tenant, action.action_id)
    return action.changed(waits=tuple(waits)) if waits else action


async def all_with_waits(journal: Journal, tenant: str, actions: Sequence[Action]) -> list[Action]:
    """The same for many of one tenant, in one look."""
    waiting = [a.approval_id for a in actions if a.state is ActionState.WAITING and a.approval_id is not None]
    if not waiting:
        return list(actions)
    async with journal.pool.connection() as connection:
        found = await approvals.map_by_ids(connection, tenant, waiting)
    return [_with(action, found) for action in actions]


def _with(action: Action, found: dict[str, Approval]) -> Action:
    approval = found.get(action.approval_id or "")
    is_waiting = action.state is ActionState.WAITING and approval is not None and approval.is_open
    return action.changed(waits=(approval.wait,)) if is_waiting and approval is not None else action
