"""What became of the calls of an answer, as events, turns and messages tell it alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from placet_server.core.publication.lease import child_id
from placet_server.model.entry import Answered, CallProblem, CallRecord, Told
from placet_server.model.outcome import OutcomeKind

# Models may answer with anything; all of it is in the entry.
CALLS_TOLD_MAX = 256
TOOL_LENGTH_MAX = 128


class Called(NamedTuple):
    """`tool`: the capability, or what the model called that is none of the run's. `action_id`: which action it becomes,
    maybe with an equal one; "" for one that is not made. `problem`: why, a CallProblem; `reason`: what a gate said, an
    ErrorReason name.
    """

    call: int
    tool: str
    action_id: str
    problem: str = ""
    reason: str = ""


def called(action_id: str, answered: Answered, told: Iterable[Told] = ()) -> tuple[Called, ...]:
    """By the run that they are calls of. `told`: what the model was told of them, once it was: only then it is known
    which of them the gates have refused.
    """
    refused = {
        each.call: each.reason for each in told if each.kind == OutcomeKind.REFUSED and not each.action_id
    }
    steps = {call.call: call.step for call in answered.calls}
    return tuple(
        _called(action_id, call, call.step or steps.get(call.alias_of or 0, ""), refused.get(call.call))
        for call in answered.calls[:CALLS_TOLD_MAX]
    )


def _called(action_id: str, call: CallRecord, step: str, refused: str | None) -> Called:
    tool = (call.name or call.tool)[:TOOL_LENGTH_MAX]
    if refused is not None:
        return Called(call.call, tool, "", CallProblem.REFUSED.value, refused)
    return Called(call.call, tool, child_id(action_id, step) if step else "", call.problem)
