"""What was said in a session before a run: the messages of its runs in their order, as they are kept.

A run that was cut off may have left calls of which its model was told nothing. Whoever asks next tells how each stands
by then, before what is asked: so every call has one result, and what was told once stays so, as it is an entry of the
run that told it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placet_server.core.execution.child import ChildEnd, end_of
from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication.session_history import (
    PastRun,
    find_place,
    read_calls,
    read_opened,
    read_past,
    size_of,
)
from placet_server.harness.plan import Plan, plan_of
from placet_server.harness.provider.answer import ResultPart
from placet_server.harness.result import results_of
from placet_server.harness.transcript import Stage, Transcript, replay
from placet_server.model.action import Action
from placet_server.model.entry import History, Opened, of_text
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind

_RECALLING = frozenset({Stage.ASK, Stage.CALL, Stage.COMPACT})


class Past(NamedTuple):
    """`answers`: which of the messages are the model's, from 0. `size`: of all that was read of it. `untold`: the calls
    of the run `action_id` of which no model was told.
    """

    messages: tuple[str, ...] = ()
    answers: tuple[int, ...] = ()
    size: int = 0
    action_id: str = ""
    untold: Plan | None = None


async def place_of(stretch: Stretch) -> History | None:
    """What is before a run that opens, if it is in a session: what others have called is in none."""
    action = stretch.attempt.action
    if action.parent_id is not None:
        return None
    place = await find_place(stretch.attempt.journal, action)
    return None if place is None else History(session_id=place.session_id, through=place.number - 1)


async def saw_sensitive(stretch: Stretch, place: History | None) -> bool:
    """Whether what was said before may hold what contracts call sensitive: the newest run says so for all before it."""
    if place is None or not place.through:
        return False
    attempt = stretch.attempt
    tenant = attempt.action.requester.tenant
    entry = await read_opened(attempt.journal, tenant, place.session_id, place.through)
    opened = None if entry is None else of_text(entry.type, entry.body)
    return isinstance(opened, Opened) and opened.saw_sensitive


async def recall(stretch: Stretch, state: Transcript) -> Past:
    """What was before a run that is to ask its model, or keeps some of it beside a summary. Raises HistoryTooLong."""
    before = None if state.opened is None else state.opened.history
    if before is None or not before.through or state.compacted or state.stage not in _RECALLING:
        return Past()
    attempt = stretch.attempt
    tenant = attempt.action.requester.tenant
    return past_of(await read_past(attempt.journal, tenant, before.session_id, before.through))


def past_of(runs: Sequence[PastRun]) -> Past:
    """Of runs in their order. Raises EntryRefused, JournalBroken."""
    past, size = Past(), 0
    for run in runs:
        state = replay(run.entries)
        size += size_of(run.entries)
        if state.asked is None and not state.compacted:
            # It ended before its model was asked anything: nobody was told of it.
            continue
        before = Past() if state.compacted else past
        answers = (len(before.messages) + place for place in state.answered_at)
        past = Past(
            messages=(*before.messages, *state.told),
            answers=(*before.answers, *answers),
            size=size,
            action_id=run.action_id,
            untold=_untold(state),
        )
    return past


async def results_for(stretch: Stretch, past: Past, *, sees_sensitive: bool) -> tuple[ResultPart, ...]:
    """One for each call that was left, as it stands now; see `results_of`."""
    plan, attempt = past.untold, stretch.attempt
    if plan is None:
        return ()
    steps = [call.step for call in plan.steps]
    found = await read_calls(attempt.journal, attempt.action.requester.tenant, past.action_id, steps)
    ends = {call.call: _end(found.get(call.step)) for call in plan.steps}
    return results_of(plan, ends, sees_sensitive=sees_sensitive)


def _untold(state: Transcript) -> Plan | None:
    if state.opened is None or state.answer is None or not state.answer.calls:
        return None
    return plan_of(state.answer, state.opened)


def _end(call: Action | None) -> ChildEnd:
    if call is not None:
        return end_of(call)
    return ChildEnd(Outcome(kind=OutcomeKind.CANCELLED, effect=EffectState.NOT_DONE))
