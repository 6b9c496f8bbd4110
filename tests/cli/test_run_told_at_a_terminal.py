"""A run at a terminal: its answer is there once, as it was said, whatever comes between; nothing in it moves the
cursor; and Ctrl-C stops nothing that somebody does not want stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from placet import RunEvent
from placet.errors import TransportError
from placet.run_event import run_event
from placet.v1 import action_pb2, error_reason_pb2, event_pb2, outcome_pb2
from placet_server.cli import run_view
from placet_server.cli.failure import advice_of
from placet_server.cli.run_view import Left, Listening, RunView

ID = "0199b0c0-0000-7000-8000-000000000001"
WAIT = outcome_pb2.Wait(approval_id="a-1", title="Pay A-1", kind=outcome_pb2.WAIT_KIND_APPROVAL)


def said(text: str, turn: int = 1, request: int = 1) -> RunEvent:
    return told(delta=event_pb2.RunDelta(turn=turn, request=request, text=text))


def told(**member: Any) -> RunEvent:
    return run_event(event_pb2.ActionEvent(action_id=ID, **member))


CALLED = told(tool_started=event_pb2.ToolStarted(tool="shop.pay", action_id="c-1", waiting=True))
ENDED = told(
    tool_finished=event_pb2.ToolFinished(
        tool="shop.pay",
        outcome=outcome_pb2.Outcome(
            kind=outcome_pb2.OUTCOME_KIND_EXHAUSTED,
            reason=error_reason_pb2.ERROR_REASON_RETRY_BUDGET,
            failure_code="undeclared_error",
        ),
    )
)
AGAIN = told(turn_requested=event_pb2.TurnRequested(turn=1, number=2, model="m"))
PARKED = told(parked=event_pb2.ActionParked(steps=1))


class FakeClient:
    """Of which a run can be joined once more: `rest` is what it says then."""

    def __init__(self, *rest: Any) -> None:
        self.rest = rest
        self.joined: list[dict[str, Any]] = []
        self.cancelled: list[str] = []

    def get(self, action_id: str) -> action_pb2.Action:
        return action_pb2.Action(outcome=outcome_pb2.Outcome(waits=[WAIT]))

    def cancel(self, action_id: str, reason: str) -> None:
        self.cancelled.append(action_id)

    def run_stream(self, action_id: str, **options: Any) -> FakeRun:
        self.joined.append(options)
        return FakeRun(*self.rest)


class FakeRun:
    action_id, cursor = ID, "c9"

    def __init__(self, *events: Any) -> None:
        self._events = iter(events)

    def __iter__(self) -> Iterator[RunEvent]:
        return self

    def __next__(self) -> RunEvent:
        event = next(self._events)
        if isinstance(event, RunEvent):
            return event
        raise event

    def __enter__(self) -> FakeRun:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def reply(self) -> str:
        return "reply"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_view, "are_terminals", lambda *names: True)


@pytest.mark.usefixtures("terminal")
def test_the_answer_stands_there_once_as_it_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    view = RunView(FakeClient())  # type: ignore[arg-type]
    for event in (said("I lo"), CALLED, ENDED, said("Don\x1b[2J", 2), said("e.\n", 2)):
        view.show(event)
    view.answer("Don\x1b[2Je.\n")
    out, err = capsys.readouterr()
    assert "I lo\nDon\\x1b[2Je.\n" == out
    assert [
        "  shop.pay  c-1  waits for people",
        "  shop.pay  EXHAUSTED  RETRY_BUDGET  undeclared_error",
    ] == err.splitlines()
    view.answer('{"total": 3}')
    assert '{"total": 3}\n' == capsys.readouterr().out


@pytest.mark.usefixtures("terminal")
def test_what_is_void_is_told_to_be_so_and_what_is_asked_again_is_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = RunView(FakeClient())  # type: ignore[arg-type]
    for event in (said("It com"), AGAIN, said("It comes.")):
        view.show(event)
    view.answer("It comes.")
    out, err = capsys.readouterr()
    assert ("It com\nIt comes.\n", True) == (out, "void" in err)


@pytest.mark.usefixtures("terminal")
def test_who_joins_is_told_what_it_waits_for_and_takes_no_void_words_for_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From where a run stands, what was asked again before that is not told."""
    client = FakeClient(said("It com"), said("It comes.", request=2))
    view = RunView(client, tells_waits=True)  # type: ignore[arg-type]
    action = action_pb2.Action(action_id=ID, cursor="c7", outcome=outcome_pb2.Outcome(waits=[WAIT]))
    assert "reply" == Listening(client, view, seconds=60.0, on_wait="hold").joined(action)  # type: ignore[arg-type]
    view.answer("It comes.")
    out, err = capsys.readouterr()
    assert "It com\nIt comes.\n" == out
    assert (1, True) == (err.count("placet approve a-1"), "void" in err)
    assert ["c7"] == [options["after"] for options in client.joined]


def test_without_a_terminal_only_the_answer_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    view = RunView(FakeClient(), tells_waits=True)  # type: ignore[arg-type]
    for event in (said("I look."), CALLED, PARKED, said("Done.", 2)):
        view.show(event)
    view.answer("Done.")
    out, err = capsys.readouterr()
    assert "Done.\n" == out
    # Once, though it was looked at twice.
    assert 1 == err.count("placet show a-1, then placet approve a-1")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("typed", "cancelled"), [("", []), ("c", [ID])])
def test_who_interrupts_goes_on_listening_where_he_was(
    monkeypatch: pytest.MonkeyPatch, typed: str, cancelled: list[str]
) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: typed)
    client = FakeClient(said("Over."))
    run = FakeRun(said("It"), KeyboardInterrupt())
    listening = Listening(client, RunView(client), seconds=60.0, on_wait="hold")  # type: ignore[arg-type]
    assert "reply" == listening.reply_of(run)  # type: ignore[arg-type]
    ((options),) = client.joined
    assert ("c9", "hold", cancelled) == (options["after"], options["on_wait"], client.cancelled)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_who_leaves_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, is_terminal: bool
) -> None:
    if is_terminal:
        request.getfixturevalue("terminal")
        monkeypatch.setattr("builtins.input", lambda prompt: "d")
    client = FakeClient()
    run = FakeRun(KeyboardInterrupt())
    listening = Listening(client, RunView(client), seconds=60.0, on_wait="return")  # type: ignore[arg-type]
    with pytest.raises(Left):
        listening.reply_of(run)  # type: ignore[arg-type]
    assert ([], []) == (client.joined, client.cancelled)


def test_whose_answer_is_too_late_or_lost_is_gone_on_with_by_its_id() -> None:
    late = TransportError("Deadline Exceeded", code="DEADLINE_EXCEEDED", action_id="01a22e54")
    assert "it goes on without you: placet resume 01a22e54" == advice_of(late, is_call=False, is_run=True)
    assert "repeat it with the same --key" == advice_of(late)
