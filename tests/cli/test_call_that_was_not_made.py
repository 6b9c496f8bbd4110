"""Of a call that is no action the command line says why, wherever it tells of calls."""

from __future__ import annotations

import asyncio

import pytest

import placet
import placet.testing
from placet.testing import Say, call
from tests.cli.support import CommandLine


async def test_the_tree_a_live_run_and_a_session_say_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = placet.App("desk")

    @app.tool("desk.note", "idempotent", input_bytes_max=64)
    async def note(text: str) -> None: ...

    app.agent("desk.helper", model="fast", tools=["desk.note"])
    script = [
        Say("", call("desk.note", text="x" * 99), call("desk.note", word="x"), call("desk.shout")),
        Say("Noted."),
    ]
    async with placet.testing.server(app, models={"fast": script}) as server:
        monkeypatch.setenv("PLACET_TARGET", server.target)
        monkeypatch.setenv("PLACET_TOKEN", server.token)
        cli = CommandLine(capsys)
        client = server.client()
        session = (await client.create_session("desk.helper")).session_id
        asked = await asyncio.to_thread(cli, "ask", "desk.helper", "Note it.", "--session", session)
        invalid = "desk.note  not made: its arguments do not fit the schema"
        unknown = "desk-shout  not made: there is no such tool"
        for line in (invalid, unknown, "desk.note  REFUSED  PAYLOAD_TOO_LARGE"):
            assert f"  {line}" in asked.err.splitlines()
        [run] = [each.action_id async for each in client.list(agent_runs=True)]
        tree = (await asyncio.to_thread(cli, "show", run, "--tree")).out
        told = [line.strip() for line in tree.splitlines() if "not made" in line]
        assert ["desk.note  not made: refused, PAYLOAD_TOO_LARGE", invalid, unknown] == told
        grown = (await asyncio.to_thread(cli, "show", run, "--tree", "--json")).document
        assert ["REFUSED", "ARGUMENTS_INVALID", "TOOL_UNKNOWN"] == [
            each["problem"] for each in grown["turns"][0]["calls"]
        ]
        said = (await asyncio.to_thread(cli, "sessions", "show", session)).out
        assert {invalid, unknown} <= {line.strip() for line in said.splitlines()}
