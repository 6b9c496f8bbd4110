"""An action's place in line: which line, from when on a server may take it, and until when.

What was executed has a caller, who comes back within the reattach grace if it still wants the work. So a server takes
such an action only after that, and not at all once the caller's deadline is over; unless an earlier attempt may have
taken effect, which is then made certain whoever waits.
"""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.model.action import PRIORITY_DEFAULT, QUEUE_DEFAULT, Action, OnCallerGone
from placet_server.model.lifecycle import ActionState
from placet_server.model.line import Line
from placet_server.store.batch_item import Advance


def place_in_line(journal: Journal, action: Action, ready_delay_seconds: float) -> Advance:
    """Of an action that is made ready again."""
    is_waited_for = not action.is_submitted and action.on_caller_gone is OnCallerGone.CANCEL
    grace = journal.reattach_grace_seconds if is_waited_for else 0.0
    return {
        "dead_letter": False,
        "queue": action.queue or QUEUE_DEFAULT,
        "priority": action.priority if action.is_submitted else PRIORITY_DEFAULT,
        "capability": action.capability,
        "version": action.version,
        "claim_delay_seconds": ready_delay_seconds + grace,
        "expire_time_us": closing_time_us(action),
    }


def line_of(action: Action) -> Line:
    return Line(action.queue or QUEUE_DEFAULT, action.capability, action.version, action.requester.tenant)


def dead_letter(action: Action) -> Advance:
    """Of an action that ends with nobody waiting."""
    return {"dead_letter": True, "queue": action.queue or None, "capability": action.capability}


def is_dead_letter(action: Action, state: ActionState) -> bool:
    """Whether ending so makes it one: every spent budget does, and what failed with nobody waiting. A child never is:
    its parent is told.
    """
    if action.parent_id is not None:
        return False
    return state is ActionState.EXHAUSTED or (state is ActionState.FAILED and action.is_submitted)


def closing_time_us(action: Action) -> int | None:
    """From when on a ready action that nobody cancels is not begun any more; None: never.

    Because repeating is not safe any longer, because no server began it in time, because its retry budget is over, or
    because its caller is gone.
    """
    budget = budget_end_us(action)
    if action.effect_unknown:
        safe = action.effect_key_expire_time_us
        return budget if safe is None else safe if budget is None else min(safe, budget)
    if action.queue_delay_seconds is not None and action.budget_time_us is None:
        return (action.ready_time_us or 0) + int(action.queue_delay_seconds * 1_000_000)
    if not action.is_submitted and action.on_caller_gone is OnCallerGone.CANCEL:
        return action.deadline_us
    return budget


def budget_end_us(action: Action) -> int | None:
    """Until when further attempts may begin; None: no such bound, or none began yet."""
    seconds = None if action.backoff is None else action.backoff.elapsed_seconds_max
    if seconds is None or action.budget_time_us is None:
        return None
    return action.budget_time_us + int(seconds * 1_000_000)
