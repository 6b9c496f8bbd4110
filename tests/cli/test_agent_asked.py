"""`placet ask` tells what the agent has answered, or what waits for people, and nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.cli.support import CommandLine


def test_the_sample_agent_answers_looks_up_and_refunds_without_a_key_of_anybody(cli: CommandLine) -> None:
    asked = cli("ask", "shop.helper", "Where is order A-1001?", "--key", "where")
    assert 0 == asked.code, asked.err
    assert "A-1001" in asked.out
    assert "SUCCEEDED" in asked.err
    assert "2 turns, 1 call" in asked.err
    # What it calls is told beside its answer.
    assert 1 == sum("orders.lookup" in line and "SUCCEEDED" in line for line in asked.err.splitlines())
    assert 1 == len(asked.out.splitlines())
    refunded = cli(
        "ask",
        "shop.helper",
        "Refund A-1003, please",
        "--budget",
        "turns=9",
        "--budget",
        "seconds=60",
        "--no-stream",
        "--json",
    ).document
    assert (9, 60.0) == tuple(refunded["action"]["budget"][name] for name in ("turns", "active_time"))
    assert ("SUCCEEDED", False) == (refunded["action"]["state"], refunded["attached"])
    assert "Refunded" in refunded["text"]
    question = ("ask", "shop.helper", "Where is order A-1001?", "--key", "where")
    again = cli(*question, "--no-stream", "--json").document
    assert again["attached"]
    *events, told = cli(*question, "--json").lines
    assert again["action"]["action_id"] == told["action"]["action_id"]
    assert asked.out == told["text"] + "\n"
    said = [event["delta"]["text"] for event in events if event.get("delta", {}).get("turn") == 2]
    assert (told["text"], "placet.action.settled") == ("".join(said), events[-1]["type"])
    shown = cli("show", again["action"]["action_id"])
    assert "turn/1/call/1" in shown.out
    assert "2 turns, 1 call" in shown.out
    assert "orders.lookup" in shown.out
    tree = [line[10:] for line in cli("show", again["action"]["action_id"], "--tree").out.splitlines()]
    assert ("shop.helper", "SUCCEEDED") == (tree[0].split()[0], tree[0].split()[2])
    begins = ["  turn 1  ", "    orders.lookup  ", "  turn 2  "]
    assert begins == [line[: len(begin)] for begin, line in zip(begins, tree[1:], strict=True)]
    grown = cli("show", again["action"]["action_id"], "--tree", "--json").document
    assert (2, ["orders.lookup"], True) == (
        len(grown["turns"]),
        [child["capability"] for child in grown["children"]],
        grown["is_whole"],
    )


def test_a_run_is_left_behind_in_a_session_with_a_file(cli: CommandLine, tmp_path: Path) -> None:
    begun = cli("sessions", "create", "shop.helper", "--title", "A-1001", "--json").document["session"]
    session_id = begun["session_id"]
    assert (True, "A-1001") == (bool(begun["resume_token"]), begun["title"])
    (tmp_path / "order.json").write_text('{"order": "A-1001"}')
    (tmp_path / "note.bin").write_bytes(b"n")
    files = [part for name in ("order.json", "note.bin") for part in ("--file", str(tmp_path / name))]
    question = ("ask", "shop.helper", "Where is order A-1001?", "--session", session_id[:18], *files)
    asked = cli(*question, "--detach", "--on-busy", "queue")
    run = asked.out.strip()
    assert (0, True) == (asked.code, f"placet resume {run}" in asked.err), asked.err
    assert 0 == cli("resume", run).code
    shown = cli("show", run, "--json").document
    assert (session_id, [{"text"}, {"json"}, {"binary"}]) == (
        shown["session_id"],
        [part.keys() for part in shown["input"]["parts"]],
    )
    # It is neither an action nor an approval.
    for text in (session_id, session_id[:18]):
        looked = cli("show", text)
        assert (9, True) == (looked.code, f"placet sessions show {session_id}" in looked.err), looked.err


def test_a_mistake_is_told_as_one(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 == cli("ask", "shop.helper", "x", "--argument", "novalue").code
    for bound, told in (("turns=none", "from 1"), ("seconds=0.3", "from 1"), ("steps=3", "say one of turns")):
        refused = cli("ask", "shop.helper", "x", "--budget", bound)
        assert (2, True) == (refused.code, told in refused.err), refused.err
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "is empty" in cli("ask", "shop.helper", "-").err
    assert 2 == cli("ask", "shop.helper", "x", "--detach", "--hold").code
    assert 2 == cli("ask", "shop.helper", "x", "--session", "01a2", "--on-busy", "wait").code
    refused = cli("ask", "orders.lookup", "x")
    assert "is no agent" in refused.err
    assert 3 == refused.code
    assert 9 == cli("ask", "no.such", "x").code
