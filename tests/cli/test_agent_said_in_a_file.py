"""An agent in a file is asked as it is written; what is wrong with it is told before anything is sent."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from placet_server.cli.inline_file import _File
from placet_server.model import inline
from tests.cli.support import CommandLine

GOOD = 'model = "local:placet-local"\ninstructions = "Look things up."\ntools = ["orders.lookup"]\n'
WRONG = [
    ("a.toml", "model = ", "no TOML"),
    ("a.json", "{", "no JSON"),
    ("a.json", "[]", "(all)"),
    ("a.json", "[" * 100_000, "nested too deeply"),
    ("a.toml", "a = " + "[" * 100_000, "nested too deeply"),
    ("a.toml", " " * 2**20 + "x", "more than 1048576 bytes"),
    ("a.toml", 'tools = ["orders.lookup"]', "model: it is needed"),
    ("a.toml", 'model = "https://models.example"', "model: it is no name of a model"),
    ("a.toml", 'model = "fast"\ntools = "orders.lookup"', "tools: it has to be a list"),
    ("a.toml", 'model = "fast"\ntools = ["orders.*"]', "tools.0: it is no name of a capability"),
    ("a.toml", 'model = "fast"\ntools = ["a.b", "a.b"]', "names one of them twice"),
    ("a.toml", 'model = "fast"\ndelegates = ["placet.agent"]', "the server's own"),
    ("a.toml", 'model = "fast"\nmax_tokens = 0', "max_tokens: it has to be a whole number, from 1"),
    ("a.json", '{"model": "fast", "budget": {"turns": 3}}', "budget: it is no member"),
]


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


@pytest.mark.parametrize(("name", "text", "told"), WRONG)
def test_what_is_wrong_with_it_is_told_and_nothing_is_sent(
    lone_cli: CommandLine, tmp_path: Path, name: str, text: str, told: str
) -> None:
    """Nobody is there who could be asked."""
    refused = lone_cli("ask", "--inline", written(tmp_path, name, text), "x", "--target", "127.0.0.1:1")
    assert (3, "", True) == (refused.code, refused.out, told in refused.err), refused.err


def test_who_is_asked_is_said_once(lone_cli: CommandLine, tmp_path: Path) -> None:
    file = written(tmp_path, "a.toml", GOOD)
    for arguments in (
        ("ask", "shop.helper", "x", "--inline", file),
        ("ask", "shop.helper"),
        ("chat", "shop.helper", "--inline", file),
        ("chat",),
        ("ask", "--inline", str(tmp_path / "none"), "x"),
    ):
        assert 2 == lone_cli(*arguments, "--target", "127.0.0.1:1").code, arguments


def test_it_is_held_to_what_the_server_holds_it_to() -> None:
    ours, theirs = _File.model_json_schema()["properties"], inline._SPEC["properties"]
    assert ours.keys() == theirs.keys()
    for bound in ("pattern", "minLength", "maxLength"):
        assert theirs["model"][bound] == ours["model"][bound]
    for names in ("tools", "delegates"):
        assert theirs[names]["maxItems"] == ours[names]["maxItems"]
        assert theirs[names]["items"]["pattern"] == ours[names]["items"]["pattern"]
    assert theirs["instructions"]["maxLength"] == ours["instructions"]["maxLength"]


def test_it_waits_for_others_to_agree_and_a_conversation_with_it_does(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "a.toml", GOOD)
    asked = cli("ask", "--inline", file, "Where is order A-1001?", "--json")
    told = asked.lines[-1]
    assert (13, "placet.agent", "WAITING") == (
        asked.code,
        told["action"]["capability"],
        told["action"]["state"],
    )
    shown = cli("show", told["action"]["action_id"], "--json").document["input"]
    assert {
        "model": "local:placet-local",
        "instructions": "Look things up.",
        "tools": ["orders.lookup"],
        "delegates": [],
    } == shown["agent"]
    monkeypatch.setattr("sys.stdin", io.StringIO("Where is order A-1001?\n"))
    as_json = written(tmp_path, "a.json", json.dumps({"model": "local:placet-local"}))
    talked: Any = cli("chat", "--inline", as_json, "--no-stream", "--json")
    (line,) = talked.lines
    assert (13, line["session_id"]) == (talked.code, line["action"]["session_id"])
