"""Summing up what a run remembers, so that a long one asks its model for no more than a bound.

What is summed up are whole turns from the beginning; the newest stay as they were. The cut lies before an answer of the
model, and so never between a call and its result. The request for it holds nothing but what is summed up, so it is
smaller than what did not fit; and what was asked of the run stays in its own words.
"""

from __future__ import annotations

from collections.abc import Sequence

from placet_server.harness.provider.answer import Answer, TurnFailure
from placet_server.harness.transcript import Transcript
from placet_server.model.agent import Memory
from placet_server.model.entry import Answered, Compacted, Purpose, TurnProblem

CONTEXT_SHARE = 0.7
# What stays as it was stands in one entry, with what was asked.
KEPT_BYTES_MAX = 2**20
_BYTES_PER_TOKEN = 3

SUM_UP = (
    "Sum up the conversation so far, for yourself: from now on you see this summary in its place. Say what was found "
    "out, decided and done, with every name, number and id that may matter later, and what is still to be done. Answer "
    "in words, and call no tool."
)
SUMMARY = "What has happened since, as you summed it up:"


def bound_of(memory: Memory, context_tokens: int) -> int:
    """So many tokens a request may hold before there is something to sum up; 0: nobody knows."""
    return memory.compact_at_tokens or int(context_tokens * CONTEXT_SHARE)


def to_sum_up(state: Transcript, messages: Sequence[str], bound: int) -> int | None:
    """How many of the messages of a run are to be summed up, before it goes on with these new ones; None: none are. A
    run that has just been summed up goes on first: twice would not help it.
    """
    if state.opened is None or state.is_fresh or not (_is_too_long(state) or _is_new_turn(state)):
        return None
    held = state.held_tokens(messages)
    if not _is_too_long(state) and (not bound or held <= bound):
        return None
    sizes = [len(text.encode()) for text in (*state.told, *messages)]
    kept_bytes_max = min((bound * _BYTES_PER_TOKEN if bound else sum(sizes)) // 2, KEPT_BYTES_MAX)
    if not state.before:
        return cut(sizes, state.answered_at, state.opened.memory.keep_turns, kept_bytes_max)
    # All that was said in its session is older than its own first turn, and what it was asked stays anyhow.
    found = cut(sizes, (0, *state.answered_at), state.opened.memory.keep_turns, kept_bytes_max)
    return 1 if found is None else found


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


def compacted(state: Transcript, head: str) -> Compacted:
    """The entry that stands for all before it. `head`: what was asked of the run, with the summary."""
    assert state.asked is not None
    begin = state.asked.summed
    answers = tuple(place - begin + 1 for place in state.answered_at if place >= begin)
    return state.compaction((head, *state.told[begin:]), answers)


def _is_too_long(state: Transcript) -> bool:
    failed, asked = state.failure, state.asked
    is_summary = asked is not None and asked.purpose is Purpose.COMPACT
    return failed is not None and failed.category is TurnProblem.CONTEXT_TOO_LONG and not is_summary


def _is_new_turn(state: Transcript) -> bool:
    return state.next_request[1] == 1
