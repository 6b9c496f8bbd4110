"""Where what was said in a session is left out from its beginning, no result is told without its call."""

from __future__ import annotations

import pytest

from placet_server.core.publication.session_history import PastRun
from placet_server.harness.history import LEFT_OUT, past_of
from placet_server.harness.provider import wire
from placet_server.model.entry import (
    Answered,
    Body,
    CallRecord,
    Compacted,
    EntryRow,
    Opened,
    Requested,
)
from placet_server.model.entry_text import entry_of
from placet_server.model.usage import Counters

OPENED = Opened(spec_digest="00", model="m")
CALL = CallRecord(call=1, id="a", tool="x", step="turn/1/call/1")


def run(name: str, *after: Body, is_left_out: bool = False) -> PastRun:
    entries = [entry_of(body) for body in (OPENED, *after)]
    rows = [
        EntryRow(type=each.type, turn=each.turn, body=each.body, ordinal=ordinal, attempt=1)
        for ordinal, each in enumerate(entries, start=1)
    ]
    return PastRun(name, rows, is_left_out)


def said(name: str, *calls: CallRecord) -> tuple[Body, Body]:
    """Whoever has calls was cut off before its model was told of them."""
    return Requested(turn=1, messages=(f'"{name}"',)), Answered(
        turn=1, calls=calls, messages=('{"answer":1}',)
    )


MARK = wire.request_text([LEFT_OUT])
SECOND, THIRD = ('"second"', '{"answer":1}'), ('"third"', '{"answer":1}')


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (said("first"), (MARK, *SECOND, *THIRD)),
        # The second one was told of its call.
        (said("first", CALL), (MARK, *THIRD)),
        # It told nothing, and nobody knows what the second one was told of who was before it.
        ((), (MARK, *THIRD)),
    ],
    ids=["whole", "cut off", "never asked"],
)
def test_whoever_was_told_of_calls_that_are_left_out_is_left_out_too(
    first: tuple[Body, ...], told: tuple[str, ...]
) -> None:
    runs = [run("1", *first, is_left_out=True), run("2", *said("second")), run("3", *said("third"))]
    past = past_of(runs)
    assert told == past.messages
    assert [place for place, text in enumerate(told) if "answer" in text] == list(past.answers)


def test_what_is_more_than_a_run_may_pay_for_is_left_out_run_by_run() -> None:
    runs = [run(name, *said(name)) for name in ("first", "second", "third")]
    size = sum(len(text) for text in THIRD)
    assert [5, 5, 3, 1] == [
        len(past_of(runs, bytes_max).messages) for bytes_max in (2 * size + 1, 2 * size + 9, size, -1)
    ]
    assert 6 == len(past_of(runs).messages)
    assert None is past_of([run("1", *said("first", CALL))], 1).untold


def test_what_stands_for_all_before_it_stands_for_what_is_left_out() -> None:
    head = Compacted(turn=3, through=9, turns=3, counters=Counters(), messages=('"head"',))
    past = past_of([run("1", *said("first", CALL), is_left_out=True), run("2", head)])
    assert ('"head"',) == past.messages
