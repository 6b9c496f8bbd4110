"""What was said in a session before a run: the messages of its runs in their order, as they are kept.

A run that was cut off may have left calls of which its model was told nothing. Whoever asks next tells how each stands
by then, before what is asked: so every call has one result, and what was told once stays so, as it is an entry of the
run that told it.

What is more than can be read, or more than a run could pay for, is left out from its beginning, and the model is told
so: no session has become too long to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placet_server.core.execution.child import ChildEnd, end_of
from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication import session_history
from placet_server.core.publication.session_history import (
    PastRun,
    find_place,
    read_calls,
    read_opened,
    read_past,
    size_of,
)
from placet_server.harness.budget import BYTES_PER_TOKEN, bytes_of
from placet_server.harness.plan import Plan, plan_of
from placet_server.harness.provider.answer import ResultPart
from placet_server.harness.replay import JournalBroken, replay
from placet_server.harness.result import results_of
from placet_server.harness.transcript import Stage, Transcript
from placet_server.model.action import Action
from placet_server.model.entry import History, Opened
from placet_server.model.entry_text import EntryRefused, of_text
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind

LEFT_OUT = "What was said before has become too long, and is left out."
# Of results of calls of which no model was told: whoever was to be told may have failed by their size.
LEFT_BYTES_MAX = 64 * 1024
# Around what is asked, as it is told.
SLACK_BYTES = 4096
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
    """Whether what was said before may hold what contracts call sensitive: the newest run says so for all before it.
    One of a release in which runs did not say it may have.
    """
    if place is None or not place.through:
        return False
    attempt = stretch.attempt
    tenant = attempt.action.requester.tenant
    entry = await read_opened(attempt.journal, tenant, place.session_id, place.through)
    try:
        opened = None if entry is None else of_text(entry.type, entry.body)
    except EntryRefused as error:
        raise JournalBroken(f"the first entry of a run before it: {error}") from None
    return isinstance(opened, Opened) and opened.saw_sensitive is not False


async def recall(stretch: Stretch, state: Transcript, text: str) -> Past:
    """What was before a run that is to ask its model, or keeps some of it beside a summary. `text`: of its input."""
    opened = state.opened
    before = None if opened is None else opened.history
    if opened is None or before is None or not before.through:
        return Past()
    if state.compacted or state.stage not in _RECALLING:
        return Past()
    attempt = stretch.attempt
    tenant = attempt.action.requester.tenant
    runs = await read_past(
        attempt.journal, tenant, before.session_id, before.through, bytes_max=session_history.BYTES_MAX
    )
    return past_of(runs, _payable_bytes(state, opened, text))


def _payable_bytes(state: Transcript, opened: Opened, text: str) -> int | None:
    """What a run can be told of its session beside what it is asked, and the longest answer; None: as much as there
    is.
    """
    tokens = opened.budget.tokens
    if not tokens:
        return None
    left = (tokens - opened.settings.max_tokens) * BYTES_PER_TOKEN
    return left - state.fixed_bytes - bytes_of([text]) - SLACK_BYTES


def past_of(runs: Sequence[PastRun], bytes_max: int | None = None) -> Past:
    """Of runs in their order. Raises JournalBroken."""
    states = [_state_of(run) for run in runs]
    first = _first_told(runs, states, bytes_max)
    past, size, is_orphaned = Past(), 0, False
    for number, (run, state) in enumerate(zip(runs, states, strict=True)):
        # One that ended before its model was asked anything: nobody was told of it.
        is_told = state.asked is not None or state.compacted > 0
        if number < first or (is_told and is_orphaned and not state.compacted):
            # Whoever was told of calls that are left out is left out, too.
            is_orphaned = _untold(state) is not None or not is_told
            past = Past(messages=(_left_out(),))
        elif is_told:
            is_orphaned = False
            size += size_of(run.entries)
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


def _state_of(run: PastRun) -> Transcript:
    try:
        return replay(run.entries)
    except JournalBroken as error:
        raise JournalBroken(f"run {run.action_id}, which was before it: {error}") from None


def _first_told(runs: Sequence[PastRun], states: Sequence[Transcript], bytes_max: int | None) -> int:
    """So many runs from the first are left out."""
    size = LEFT_BYTES_MAX if states and _untold(states[-1]) is not None else 0
    for number in reversed(range(len(runs))):
        size += bytes_of(states[number].told)
        if runs[number].is_left_out or (bytes_max is not None and size > bytes_max):
            return number + 1
    return 0


async def results_for(stretch: Stretch, past: Past, *, sees_sensitive: bool) -> tuple[ResultPart, ...]:
    """One for each call that was left, as it stands now; see `results_of`."""
    plan, attempt = past.untold, stretch.attempt
    if plan is None:
        return ()
    steps = [call.step for call in plan.steps]
    found = await read_calls(attempt.journal, attempt.action.requester.tenant, past.action_id, steps)
    ends = {call.call: _end(found.get(call.step)) for call in plan.steps}
    return results_of(plan, ends, sees_sensitive=sees_sensitive, bytes_max=LEFT_BYTES_MAX)


def _left_out() -> str:
    from placet_server.harness.provider import wire

    return wire.request_text([LEFT_OUT])


def _untold(state: Transcript) -> Plan | None:
    if state.opened is None or state.answer is None or not state.answer.calls:
        return None
    return plan_of(state.answer, state.opened)


def _end(call: Action | None) -> ChildEnd:
    if call is not None:
        return end_of(call)
    return ChildEnd(Outcome(kind=OutcomeKind.CANCELLED, effect=EffectState.NOT_DONE))
