"""Whoever looks at an action sees what it has called, and who called it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import CommandLine, DevServer
from tests.postgres import lay_out


def test_a_parent_shows_its_children_and_a_child_its_parent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(folder / ".placet", "embedded")
    with DevServer(folder / ".placet", "--app", "tests.cli.parcels:app") as server:
        monkeypatch.setenv("PLACET_TOKEN_FILE", str(server.token_file))
        cli = CommandLine(capsys)
        parent = cli("call", "parcels.ship", "--json").document["action"]["action_id"]
        shown = cli("show", parent, "--json").document
        assert ["first", "second"] == [child["step_path"] for child in shown["children"]]
        listed = cli("ls", "--parent", parent, "--json").document["actions"]
        assert {child["action_id"] for child in shown["children"]} == {each["action_id"] for each in listed}
        text = cli("show", parent).out
        child = shown["children"][1]["action_id"]
        assert f"called  second  {child}  parcels.weigh  SUCCEEDED" in text
        assert f"{parent}, step second" in cli("show", child).out
        assert [] == cli("ls", "--parent", child, "--json").document["actions"]
        told = cli("watch", parent, "--descendants", "--json").lines
        ids = [each["action_id"] for each in told if "action_id" in each]
        assert {parent, *(each["action_id"] for each in shown["children"])} == set(ids)
        assert (parent, parent) == (ids[0], ids[-1])
        one = cli("watch", parent, "--json").lines
        assert {parent} == {each["action_id"] for each in one if "action_id" in each}
        told_text = cli("watch", parent, "--descendants").out
        assert all(each[:8] in told_text for each in ids)
