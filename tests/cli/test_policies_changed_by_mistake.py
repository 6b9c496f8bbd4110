"""Policies from the command line: looked at before they are in force, and gone back from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placet_server.cli.exit_code import ExitCode
from tests.cli.support import CommandLine

Write = Callable[..., str]
ALL = '@id("all") permit (principal, action, resource);\n'
NO_LOOKUP = ALL + '@id("no-lookup") forbid (principal, action == Action::"orders.lookup", resource);\n'
LOOKUP = ("orders.lookup", '{"order": "A-1001"}')


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def back(cli: CommandLine) -> Iterator[None]:
    """Other tests of this server find the built-in policies."""
    yield
    assert 0 == cli("policy", "rollback", "0").code


@pytest.mark.usefixtures("back")
def test_a_set_is_looked_at_put_in_force_and_taken_back(cli: CommandLine, write: Write) -> None:
    called = cli("call", *LOOKUP, "--json").document
    file = write("no-lookup.cedar", NO_LOOKUP)
    assert "nothing is wrong" in cli("policy", "validate", file).out
    run = cli("policy", "dry-run", file, "--since", "1h", "--capability", "orders.lookup", "--json")
    changed = {each["action_id"]: each for each in run.document["changes"]}
    assert "forbidden" == changed[called["action"]["action_id"]]["after"]["problem"]
    assert "refused (forbidden)" in cli("policy", "dry-run", file, "--since", "1h").out
    looked = cli("policy", "admit", file, "--validate-only")
    assert (0, True) == (looked.code, "would be admitted" in looked.out)
    admitted = cli("policy", "admit", file, "--json").document
    assert (True, True) == (admitted["ok"], admitted["changed"])
    assert "was already" in cli("policy", "admit", file).out
    refused = cli("call", *LOOKUP, "--json")
    assert ExitCode.FORBIDDEN == refused.code
    refusal_id = refused.document["error"]["metadata"]["refusal_id"]
    told = cli("explain", refusal_id).out
    assert "these forbid it" in told
    assert '@id("no-lookup") forbid' in told
    assert cli("explain", called["action"]["action_id"][:18], "--json").document["is_action"]
    shown = cli("policy", "get")
    assert (NO_LOOKUP, True) == (shown.out, admitted["digest"] in shown.err)
    rows = cli("policy", "list", "--json").document["revisions"]
    assert "no-lookup" == rows[0]["name"]
    assert "no-lookup" in cli("policy", "list").out
    stale = cli("policy", "rollback", "0", "--expected-digest", "0" * 64)
    assert ExitCode.CONFLICT == stale.code
    assert (
        'permit (principal, action, resource)\nwhen { resource.effect == "READ" };'
        in cli("policy", "get", "0").out
    )


def test_what_is_wrong_with_a_set_is_told_with_its_place(cli: CommandLine, write: Write) -> None:
    file = write("bad.cedar", ALL + "permit (principal, action, resource) when { resource.colour == 1 };")
    for command in ("validate", "admit"):
        options = ("--validate-only",) if command == "admit" else ()
        ended = cli("policy", command, file, *options)
        assert ExitCode.REFUSED == ended.code
        assert "policies[1]  policy_invalid" in ended.err
    refused = cli("policy", "admit", file, "--json")
    assert (ExitCode.REFUSED, "POLICY_SET_REFUSED") == (refused.code, refused.document["error"]["reason"])


def test_files_that_are_none_are_told_before_anything_is_sent(lone_cli: CommandLine, write: Write) -> None:
    file = write("all.cedar", ALL)
    for overlays in (
        "no JSON",
        "{}",
        '[{"pattern": 1}]',
        '[{"pattern": "*", "colour": 1}]',
        '[{"pattern": "*", "hazards": ["x"]}]',
    ):
        ended = lone_cli("policy", "validate", file, "--overlays", write("overlays.json", overlays))
        assert (ExitCode.USAGE, True) == (ended.code, "--overlays" in ended.err)
    assert ExitCode.USAGE == lone_cli("policy", "admit", "nowhere.cedar").code
    assert json.loads(lone_cli("policy", "admit", "nowhere.cedar", "--json").out)["error"]
