"""What the model is asked for next: to go on, to mend its answer, or to sum up what has become too long; and what that
is charged before it is asked.
"""

from __future__ import annotations

from dataclasses import replace

from placet_server.harness.budget import bound_of_request
from placet_server.harness.compaction import (
    SUM_UP,
    bound_of,
    entry_of_summary,
    request_of,
    reserve_of,
    to_sum_up,
)
from placet_server.harness.ending import failure, spend
from placet_server.harness.transcript import Transcript
from placet_server.model.entry import Compacted, Entry, Purpose, Requested, Told
from placet_server.model.entry_text import EntryRefused, entry_of

_WHAT_TO_DO = (
    "Ask for less at once: hand over references to large things, and let `max_tokens` of the agent's settings bound "
    "its answers."
)


def next_request(
    state: Transcript, results: tuple[Told, ...], messages: tuple[str, ...], context_tokens: int
) -> Requested:
    """Of a run that has opened. `messages`: what the model is told that it has not been told before, and of which calls
    that is, `results`; `context_tokens`: what a request to it may hold, 0: nobody knows.
    """
    from placet_server.harness.provider import wire

    assert state.opened is not None
    summed = to_sum_up(state, messages, bound_of(state.opened.memory, context_tokens))
    if summed is not None:
        return request_of(state, summed, results, (*messages, wire.request_text([SUM_UP])))
    turn, number = state.next_request
    purpose = Purpose.ANSWER
    if number > 1 and state.asked is not None:
        purpose = state.asked.purpose
    elif state.answer is not None and state.answer.invalid:
        purpose = Purpose.REPAIR
    return Requested(turn=turn, number=number, purpose=purpose, results=results, messages=messages)


def charged(state: Transcript, requested: Requested, active_ms: int) -> Requested:
    """With its reserve. Raises Ended if it would pass a bound."""
    assert state.opened is not None
    reserve = reserve_of(state, requested, state.opened.price)
    counters = replace(state.told_of(requested.results), active_ms=active_ms)
    if (spent := bound_of_request(counters, state.opened.budget, requested.number, reserve)) is not None:
        spend(spent)
    return replace(requested, tokens=reserve.tokens, micros=reserve.micros)


def entry_told(body: Requested | Compacted) -> Entry:
    """The entry of what the model is told. Raises Failure for more than one may hold."""
    try:
        return entry_of_summary(body) if isinstance(body, Compacted) else entry_of(body)
    except EntryRefused as error:
        raise failure(
            "message_too_large",
            f"What the model would be told is too large: {error}. {_WHAT_TO_DO}",
            "invalid",
        ) from None
