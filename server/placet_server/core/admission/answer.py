"""What a call that runs an action is told, once there is nothing more to wait for."""

from __future__ import annotations

from dataclasses import replace

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.outcome import error_of, outcome_of
from placet_server.core.publication.read import as_told
from placet_server.model.action import Action, OnWait
from placet_server.model.errors import PlacetError, WaitExpired
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import OutcomeKind


async def answer(journal: Journal, action: Action, on_wait: OnWait) -> Action:
    """The action: SUCCEEDED, or WAITING for who wants that returned. Raises the error of every other state, with the
    outcome.
    """
    action = await as_told(journal, action)
    if waits_for_people(action) and on_wait is OnWait.RETURN:
        return action
    error = _still_held(action) if on_wait is OnWait.HOLD else error_of(action)
    if error is not None:
        raise error
    return action


def waits_for_people(action: Action) -> bool:
    """Whether it does, or a step of what waits for its steps alone."""
    return action.state is ActionState.WAITING and (not action.is_parked or bool(action.waits))


def _still_held(action: Action) -> PlacetError | None:
    """Who holds on is told of an end; before it only that his wait is over."""
    if action.state is not ActionState.WAITING:
        return error_of(action)
    error = WaitExpired(state=action.state.value)
    error.outcome = replace(outcome_of(action), kind=OutcomeKind.PENDING, reason=error.reason)
    return error
