"""What each entry adds to a transcript. A run that goes on and a run that is read again take the same step for each of
them, from its text: so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from placet_server.harness.budget import bytes_of, charge_request, credit_answer, credit_failure
from placet_server.harness.plan import equality
from placet_server.harness.transcript import Stage, Transcript
from placet_server.model.entry import (
    Answered,
    Body,
    Compacted,
    Entry,
    EntryRow,
    Failed,
    Opened,
    Purpose,
    Requested,
    TurnProblem,
)
from placet_server.model.entry_text import EntryRefused, of_text


class JournalBroken(Exception):
    """Entries that no run of ours writes, or not in this order."""


def replay(entries: Iterable[EntryRow], *, active_ms: int = 0) -> Transcript:
    """Of the entry that opened a run and all since it was compacted. Raises JournalBroken."""
    transcript = Transcript()
    for entry in entries:
        try:
            transcript = with_entry(transcript, entry)
        except EntryRefused as error:
            raise JournalBroken(f"entry {entry.ordinal}: {error}") from None
    return transcript.is_active(active_ms)


def with_entry(state: Transcript, entry: Entry) -> Transcript:
    """Raises EntryRefused, JournalBroken."""
    body = of_text(entry.type, entry.body)
    after = _after(state, body)
    ordinal = entry.ordinal if isinstance(entry, EntryRow) else state.ordinal + 1
    if isinstance(body, Compacted):
        after = replace(after, compacted=ordinal)
    return replace(after, ordinal=ordinal)


def _after(state: Transcript, body: Body) -> Transcript:
    match body:
        case Opened():
            _check(state, state.opened is None, body)
            return replace(state, opened=body)
        case Requested():
            return _requested(state, body)
        case Answered():
            return _answered(state, body)
        case Failed():
            _check(state, _is_asked(state, body.turn) and body.number == state.tries, body)
            assert state.asked is not None
            return replace(state, failure=body, counters=credit_failure(state.counters, state.asked, body))
        case Compacted():
            return _compacted(state, body)
        case _:
            assert_never(body)


def _requested(state: Transcript, body: Requested) -> Transcript:
    _check(state, state.opened is not None, body)
    _check(state, state.stage in (Stage.ASK, Stage.CALL), body)
    _check(state, _is_next(state, body), body)
    _check(state, not (body.number > 1 and (body.messages or body.results)), body)
    pending = state.pending
    _check(
        state,
        [told.call for told in body.results] == ([call.call for call in pending.calls] if pending else []),
        body,
    )
    counters = state.told_of(body.results)
    asked, added = replace(body, messages=()), body.messages
    if body.number > 1 and state.asked is not None:
        # A further try is for what the first one was for.
        first = state.asked
        asked = replace(
            asked,
            purpose=first.purpose,
            summed=first.summed,
            past=first.past,
            clip=first.clip,
            messages=first.messages,
        )
    elif body.purpose is Purpose.COMPACT:
        _check(state, bool(body.messages) and body.summed < len(state.told) + len(body.messages), body)
        asked, added = replace(asked, messages=body.messages[-1:]), body.messages[:-1]
    return replace(
        state,
        counters=charge_request(counters, body),
        turn=body.turn,
        tries=body.number,
        asked=asked,
        answer=None,
        failure=None,
        told=(*state.told, *added),
        unmeasured_bytes=state.unmeasured_bytes + bytes_of(added),
    )


def _is_next(state: Transcript, body: Requested) -> bool:
    if body.purpose is Purpose.COMPACT and body.number == 1 and state.failure is not None:
        # What did not fit is not asked for again before it was summed up, nor for a summary of as much.
        return (
            state.failure.category is TurnProblem.CONTEXT_TOO_LONG
            and state.asked is not None
            and (state.asked.purpose is not Purpose.COMPACT or _is_less(state, body))
            and body.turn == state.turn + 1
        )
    return (body.turn, body.number) == state.next_request


def _is_less(state: Transcript, body: Requested) -> bool:
    """Than what was to be summed up; however much there is of its session, of which nothing is known here."""
    assert state.asked is not None
    new, old = ((each.past is None, each.past or 0, each.summed) for each in (body, state.asked))
    is_clipped = 0 < body.clip and (not state.asked.clip or body.clip < state.asked.clip)
    return new < old or is_clipped


def _answered(state: Transcript, body: Answered) -> Transcript:
    _check(state, _is_asked(state, body.turn), body)
    assert state.asked is not None
    assert state.opened is not None
    counters, answer = credit_answer(state.counters, state.asked, body), replace(body, messages=())
    if state.asked.purpose is Purpose.COMPACT:
        return replace(state, counters=counters, answer=answer)
    return replace(
        state,
        counters=counters,
        answer=answer,
        answered_at=(*state.answered_at, len(state.told)),
        is_fresh=False,
        repairs=state.repairs + body.invalid,
        equal=_with_equal(state, body) if state.opened.budget.equal_calls else (),
        told=(*state.told, *body.messages),
        measured_tokens=state.measured_tokens if body.usage is None else body.usage.tokens,
        unmeasured_bytes=state.unmeasured_bytes + bytes_of(body.messages) if body.usage is None else 0,
    )


def _compacted(state: Transcript, body: Compacted) -> Transcript:
    # A replay begins here, with nothing but what opened the run before it.
    is_read = state.opened is not None and state.turn == 0
    _check(state, is_read or (state.stage is Stage.COMPACT and body.turn == state.turn), body)
    return replace(
        state,
        counters=replace(body.counters, active_ms=state.counters.active_ms),
        turn=body.turn,
        tries=0,
        asked=None,
        answer=None,
        failure=None,
        repairs=body.repairs,
        equal=tuple((each.digest, each.count) for each in body.equal),
        told=body.messages,
        measured_tokens=0,
        unmeasured_bytes=bytes_of(body.messages),
        answered_at=body.answers,
        asked_at=body.asked_at,
        is_fresh=True,
    )


def _with_equal(state: Transcript, body: Answered) -> tuple[tuple[str, int], ...]:
    counts = dict(state.equal)
    for call in body.calls:
        if call.step:
            digest = equality(call)
            counts[digest] = counts.get(digest, 0) + 1
    return tuple(counts.items())


def _is_asked(state: Transcript, turn: int) -> bool:
    return state.asked is not None and state.answer is None and state.failure is None and turn == state.turn


def _check(state: Transcript, holds: bool, body: Body) -> None:
    if not holds:
        raise JournalBroken(
            f"{body.type.value} after entry {state.ordinal}, in the stage {state.stage.value}"
        )
