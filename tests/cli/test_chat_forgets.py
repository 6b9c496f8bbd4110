"""`placet chat` is one conversation over a pipe, and `placet sessions` tells what was said in it."""

from __future__ import annotations

import io

import pytest

from tests.cli.support import CommandLine


def test_a_conversation_is_gone_on_with_told_and_ended(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Where is order A-1001?\n\nAnd the status of A-1001?\n"))
    first = cli("chat", "shop.helper", "--no-stream", "--json")
    assert 0 == first.code, first.err
    (session_id,) = {line["session_id"] for line in first.lines}
    assert ["SUCCEEDED", "SUCCEEDED"] == [line["action"]["state"] for line in first.lines]
    assert {session_id} == {line["action"]["session_id"] for line in first.lines}
    monkeypatch.setattr("sys.stdin", io.StringIO("Thanks.\n/quit\nnever read\n"))
    assert 0 == cli("chat", "--session", session_id[:18], "--budget", "turns=9").code
    sessions = cli("sessions", "--json").document["sessions"]
    (listed,) = [each for each in sessions if each["session_id"] == session_id]
    assert (session_id, "shop.helper", "OPEN", 3) == (
        listed["session_id"],
        listed["agent"],
        listed["state"],
        listed["runs"],
    )
    told = cli("sessions", "show", session_id)
    assert "you: Where is order A-1001?" in told.out
    assert "orders.lookup" in told.out
    # A document a line, each as its page comes.
    shown = cli("sessions", "show", session_id, "--json").lines
    messages = [line["message"] for line in shown[1:]]
    assert (session_id, {"session"}) == (shown[0]["session"]["session_id"], set(shown[0]))
    assert [1, 2, 3] == [each["number"] for each in messages if each["role"] == "USER"]
    assert "CLOSED" in cli("sessions", "close", session_id).out
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello?\n"))
    refused = cli("chat", "shop.helper", "--session", session_id)
    assert 3 == refused.code
    assert "closed" in refused.err
    assert 9 == cli("sessions", "show", "ffffffff").code
