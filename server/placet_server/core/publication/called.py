"""What became of the calls of an answer, as events, turns and messages tell it alike."""

from __future__ import annotations

from typing import NamedTuple

from placet_server.core.publication.lease import child_id
from placet_server.model.entry import Answered

# Models may answer with anything; all of it is in the entry.
CALLS_TOLD_MAX = 256
TOOL_LENGTH_MAX = 128


class Called(NamedTuple):
    """`tool`: the capability, or what the model called that is none of the run's. `action_id`: which action it becomes,
    maybe with an equal one; "" for one that is not made.
    """

    call: int
    tool: str
    action_id: str


def called(action_id: str, answered: Answered) -> tuple[Called, ...]:
    """By the run that they are calls of."""
    steps = {call.call: call.step for call in answered.calls}
    told = [
        (call, call.step or steps.get(call.alias_of or 0, "")) for call in answered.calls[:CALLS_TOLD_MAX]
    ]
    return tuple(
        Called(
            call.call, (call.name or call.tool)[:TOOL_LENGTH_MAX], child_id(action_id, step) if step else ""
        )
        for call, step in told
    )
