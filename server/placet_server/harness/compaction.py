"""Summing up what a run remembers, so that a long one asks its model for no more than a bound.

What is summed up are whole turns from the beginning, of its session first; the newest stay as they were. The cut lies
before an answer of the model, and so never between a call and its result. The request for it holds nothing but what is
summed up, so it is smaller than what did not fit; and what was asked of the run stays in its own words.

If the least that can be summed up does not fit, no more is told of it than does, `clip`: so that one message, however
long it is, stands in nobody's way for ever. Each request that is refused is a turn. So where few are left, that is done
at once, and with all that was said in the session before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placet_server.core.publication.session_history import HEAVY_BYTES
from placet_server.harness.budget import bytes_of, reserve_for
from placet_server.harness.clip import clipped
from placet_server.harness.provider.answer import Answer, TurnFailure
from placet_server.harness.transcript import Transcript
from placet_server.model.agent import Memory
from placet_server.model.entry import Answered, Compacted, Entry, Purpose, Requested, Told, TurnProblem
from placet_server.model.entry_text import ENTRY_BYTES_MAX, EntryRefused, entry_of, to_text
from placet_server.model.usage import Price, Reserve

CONTEXT_SHARE = 0.7
# What stays as it was stands in one entry, with what was asked.
KEPT_BYTES_MAX = 2**20
# Of the least that can be summed up, one after the other; the last one fits into whatever is asked.
CLIPS = (64 * 1024, 8 * 1024)
# Of the tokens that a run may spend, before what was said in its session is summed up.
BUDGET_PART = 3
_BYTES_PER_TOKEN = 3
# Of each message, beside itself: its size, and of one that is shortened what says so.
_FRAME_BYTES = 256

SUM_UP = (
    "Sum up the conversation so far, for yourself: from now on you see this summary in its place. Say what was found "
    "out, decided and done, with every name, number and id that may matter later, and what is still to be done. Answer "
    "in words, and call no tool."
)
SUMMARY = "What has happened since, as you summed it up:"
PAST_SUMMARY = "What was said before, as you summed it up:"


def bound_of(memory: Memory, context_tokens: int) -> int:
    """So many tokens a request may hold before there is something to sum up; 0: nobody knows."""
    return memory.compact_at_tokens or int(context_tokens * CONTEXT_SHARE)


def to_sum_up(state: Transcript, messages: Sequence[str], bound: int) -> int | None:
    """How many of the messages of a run, with those before it in its session, are to be summed up, before it goes on
    with these new ones; None: none are. A run that has just been summed up goes on first: twice would not help it, but
    where some of its session stayed as it was.
    """
    if state.opened is None or (state.is_fresh and not (_is_too_long(state) and state.asked_at)):
        return None
    if _is_summary_too_long(state):
        less = None if _hurries(state) else _less(state)
        return _all(state) if less is None and _next_clip(state) else less
    if not (_is_too_long(state) or _is_new_turn(state)):
        return None
    is_past_bound = 0 < bound < state.held_tokens(messages)
    affordable = state.opened.budget.tokens // BUDGET_PART
    is_dear = 0 < affordable * _BYTES_PER_TOKEN < bytes_of(state.before)
    if not (_is_too_long(state) or is_past_bound or is_dear or _is_heavy(state)):
        return None
    if is_dear:
        bound = min(bound or affordable, affordable)
    begin = len(state.before)
    sizes = [len(text.encode()) for text in (*state.before, *state.told, *messages)]
    kept_bytes_max = min((bound * _BYTES_PER_TOKEN if bound else sum(sizes)) // 2, KEPT_BYTES_MAX)
    # What was asked first of all does not stay as it was, unless that was of this run.
    answers = (0, *state.answers) if begin else state.answers
    found = cut(sizes, answers, state.opened.memory.keep_turns, kept_bytes_max)
    # Else all that was before what was asked of the run: none of it was ever answered, or it does not fit beside that.
    end = begin + state.asked_at
    is_kept = found is not None and sum(sizes[found:end]) <= KEPT_BYTES_MAX
    return end if not is_kept and end > _least(state) else found


def is_past_help(state: Transcript) -> bool:
    """The model refused the request as too long, and there is nothing to sum up, or that was done just before."""
    return to_sum_up(state, (), 0) is None


def cut(sizes: Sequence[int], answered_at: Sequence[int], keep_turns: int, kept_bytes_max: int) -> int | None:
    """How many messages are summed up: `sizes` in bytes of all, `answered_at` which of them are answers. The most that
    may stay does: so many turns, and bytes; but the newest turn always, and the oldest never. None: there is no other.
    """
    found = None
    for begin in reversed(answered_at[1:][-keep_turns:]):
        if found is not None and sum(sizes[begin:]) > kept_bytes_max:
            break
        found = begin
    return found


def request_of(
    state: Transcript, count: int, results: tuple[Told, ...], messages: tuple[str, ...]
) -> Requested:
    """For a summary of so many; where they did not fit, of less of each."""
    before, clip = len(state.before), 0
    if state.asked is not None and _is_summary_too_long(state):
        clip = state.asked.clip if count < state.summed else _next_clip(state)
    elif _is_too_long(state) and _turns_left(state) <= 1:
        # There is no second chance; the next run of the session goes on from it.
        clip = CLIPS[-1]
    return Requested(
        turn=state.turn + 1,
        purpose=Purpose.COMPACT,
        results=results,
        summed=max(count - before, 0),
        past=count if count < before else None,
        clip=clip,
        messages=messages,
    )


def reserve_of(state: Transcript, requested: Requested, price: Price | None) -> Reserve:
    """What the next request may spend."""
    if not requested.clip or state.opened is None:
        return state.reserve(requested.messages, price)
    *told, wanted = requested.messages
    past = len(state.before) if requested.past is None else requested.past
    held = clipped([*state.before, *state.told, *told][: past + requested.summed], requested.clip)
    size = state.fixed_bytes + bytes_of([*held, wanted])
    return reserve_for(0, size, state.opened.settings.max_tokens, price)


def summed_up(answer: Answer, turn: int) -> Answered:
    """The entry of an answer that sums up. Raises TurnFailure for one without words: it may have some when it is asked
    again.
    """
    words = "\n\n".join(text for text in answer.said if text).strip()
    if not words:
        raise TurnFailure(TurnProblem.TRUNCATED, charged=True, detail="the summary has no words")
    return Answered(
        turn=turn,
        usage=answer.usage,
        cost_micros=answer.cost_micros,
        finish=answer.finish,
        summary=words,
        messages=(answer.text,),
    )


def sums_up_what_was_asked(state: Transcript) -> bool:
    """Whether what was asked of the run is among what is summed up, and not among what stays."""
    return state.summed > len(state.before) + state.asked_at


def compacted(state: Transcript, head: str) -> Compacted:
    """The entry that stands for all before it. `head`: the summary, with what was asked of the run if that is in it."""
    begin = state.summed
    answers = tuple(place - begin + 1 for place in state.answers if place >= begin)
    asked_at = 0 if sums_up_what_was_asked(state) else len(state.before) + state.asked_at - begin + 1
    return state.compaction((head, *(*state.before, *state.told)[begin:]), answers, asked_at)


def entry_of_summary(body: Compacted) -> Entry:
    """Its entry; with less of its longest messages, and without their pictures, where all of them together are more
    than one may have: whoever has summed up has seen them. Answers stay whole, so of the rest there is as much as they
    leave room for. Raises EntryRefused if they leave none.
    """
    try:
        return entry_of(body)
    except EntryRefused:
        room = _room_beside_answers(body)
    try:
        return entry_of(_with_less(body, min(room, ENTRY_BYTES_MAX) // 2))
    except EntryRefused:
        # A byte of a message has at most six where it is kept.
        return entry_of(_with_less(body, room // 8))


def _with_less(body: Compacted, bytes_max: int) -> Compacted:
    """Of all that is not the model's about so many bytes."""
    others = max(len(body.messages) - len(body.answers), 1)
    share = max(bytes_max, 0) // others
    told = clipped(body.messages, share * len(body.messages), with_answers=False)
    return replace(body, messages=tuple(told))


def _room_beside_answers(body: Compacted) -> int:
    answers = sum(len(body.messages[place].encode()) for place in body.answers)
    frame = len(to_text(replace(body, messages=())).encode()) + _FRAME_BYTES * len(body.messages)
    return ENTRY_BYTES_MAX - answers - frame


def _is_too_long(state: Transcript) -> bool:
    failed = state.failure
    return failed is not None and failed.category is TurnProblem.CONTEXT_TOO_LONG


def _is_summary_too_long(state: Transcript) -> bool:
    return _is_too_long(state) and state.asked is not None and state.asked.purpose is Purpose.COMPACT


def _turns_left(state: Transcript) -> int:
    """That the run may still ask for."""
    assert state.opened is not None
    turns = state.opened.budget.turns
    return turns - state.counters.turns if turns else len(CLIPS) + 2


def _hurries(state: Transcript) -> bool:
    """The turns that are left are for telling less of each message, and for the answer."""
    return _turns_left(state) <= len(CLIPS) + 1


def _all(state: Transcript) -> int:
    """Of the session what is there; else what was to be summed up."""
    return max(state.summed, len(state.before) + state.asked_at) if _hurries(state) else state.summed


def _less(state: Transcript) -> int | None:
    """At most two thirds of it, where that was said in the session before the run."""
    end = min(state.summed, len(state.before) + state.asked_at)
    sizes = [len(text.encode()) for text in (*state.before, *state.told)[:end]]
    least, whole = _least(state), sum(sizes)
    places = [place for place in state.answers if least < place < end and 3 * sum(sizes[:place]) <= 2 * whole]
    return places[-1] if places else None


def _least(state: Transcript) -> int:
    """So many messages are not worth a summary: one that is there already."""
    return int(state.compacted > 0)


def _next_clip(state: Transcript) -> int:
    """Smaller than that of the request that did not fit, the smallest where turns are few; 0: there is none."""
    before = 0 if state.asked is None else state.asked.clip
    smaller = [clip for clip in CLIPS if not before or clip < before]
    if not smaller:
        return 0
    return smaller[-1] if _turns_left(state) <= 2 else smaller[0]


def _is_heavy(state: Transcript) -> bool:
    """What was said in its session has become so much that soon it cannot be read any more. The input of a call stands
    in its entry twice.
    """
    if state.opened is None or state.opened.history is None:
        return False
    past = 0 if state.compacted else state.history_bytes
    return past + 2 * sum(len(text.encode()) for text in state.told) > HEAVY_BYTES


def _is_new_turn(state: Transcript) -> bool:
    return state.next_request[1] == 1
