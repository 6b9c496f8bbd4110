"""Whoever talks with an agent is told what its run waits for, and hears it go on once somebody has decided; whoever has
left finds the run again, and how it stands.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import placet
from placet.testing import Say, Server, call, server
from placet.v1 import decision_pb2
from tests.cli.support import CommandLine, Ended, clean_environment, missing_server, warm_command
from tests.terminal import Terminal, at_a_terminal

app = placet.App("desk")


@app.tool("desk.refund", "idempotent", hazards=["financial"], approval="1 of role:finance")
async def refund(order: str) -> str:
    return f"refunded {order}"


app.agent("desk.helper", model="fast", tools=["desk.*"])
app.agent("desk.greeter", model="hello", instructions="Greet {{customer}}.")


SCRIPT = [Say("I refund it.", call("desk.refund", order="A-1")), Say("It is refunded.")]


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[tuple[Server, Path]]:
    problem = missing_server()
    if problem is not None:
        pytest.skip(problem)
    token_file = tmp_path / "token"
    models = {"fast": SCRIPT, "hello": [Say("Hello.")]}
    async with server(app, models=models, people=["ben:finance"], token_file=token_file) as running:
        yield running, token_file


async def decide(running: Server) -> None:
    ben = running.person("ben")
    (waiting,) = [each async for each in ben.approvals()]
    await ben.decide(waiting.approval_id, "approve", digest=waiting.digest)


async def read_until(terminal: Terminal, wanted: str, seen: str = "") -> str:
    while wanted not in seen:
        part = await asyncio.to_thread(terminal.read)
        assert part, seen
        seen += part
    return seen


async def test_at_a_terminal_a_conversation_says_what_it_waits_for_and_goes_on_once_that_is_decided(
    desk: tuple[Server, Path],
) -> None:
    running, token_file = desk
    environment = clean_environment(PLACET_TOKEN_FILE=str(token_file), TERM="dumb")
    with at_a_terminal([warm_command(), "chat", "desk.helper"], environment) as terminal:
        await read_until(terminal, "> ")
        terminal.type("Refund it.\n")
        asked = await read_until(terminal, "decided by")
        assert asked.index("I refund it.") < asked.index("desk.refund")
        # Ctrl-C asks; whoever leaves the run hears it again from where it stands.
        terminal.type("\x03")
        await read_until(terminal, "enter listens on")
        terminal.type("d\n")
        await read_until(terminal, "an empty line listens on")
        terminal.type("\n")
        again = await read_until(terminal, "decided by")
        assert "is not over" in again
        await decide(running)
        told = await read_until(terminal, "> ")
        assert "desk.refund  SUCCEEDED" in told
        assert 1 == told.count("It is refunded.")
        terminal.type("/help\n")
        assert "an answer: leaves its run" in await read_until(terminal, "cancels it")
        terminal.type("\x03")
        left = await read_until(terminal, "--session")
        assert ("goes on with: placet chat desk.helper" in left, 130) == (True, terminal.process.wait(60))


async def test_over_a_pipe_it_ends_there_and_the_run_is_found_by_its_session_by_its_id_and_in_the_list(
    desk: tuple[Server, Path], lone_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, token_file = desk
    monkeypatch.setenv("PLACET_TOKEN_FILE", str(token_file))

    async def typed(*arguments: str, stdin: str = "") -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        return await asyncio.to_thread(lone_cli, *arguments)

    asked = await typed("chat", "desk.helper", "--no-stream", "--json", stdin="Refund it.\nnever read\n")
    (told,) = asked.lines
    run, session = told["action"]["action_id"], told["session_id"]
    assert (13, "WAITING") == (asked.code, told["action"]["state"])
    joined = await typed("resume", run)
    assert (13, run) == (joined.code, joined.out.strip())
    assert "decided by    placet show" in joined.err
    assert f"next          placet resume {run}" in joined.err
    stayed = await typed("resume", run, "--hold", "--timeout", "500ms")
    assert f"next          it goes on without you: placet resume {run}" in stayed.err
    busy = await typed("chat", "desk.helper", "--session", session, stdin="Hello?\n")
    assert (13, True) == (busy.code, f"run {run} is not over" in busy.err)

    (listed,) = (await typed("ls", "--agents", "--state", "waiting", "--json")).document["actions"]
    assert (run, 1) == (listed["action_id"], listed["usage"]["turns"])
    everything = (await typed("ls", "--json")).document["actions"]
    runs = (await typed("ls", "--agents", "--json")).document["actions"]
    of_agents = [each["action_id"] for each in everything if each["capability"] == "desk.helper"]
    assert of_agents == [each["action_id"] for each in runs]
    shown = await typed("ls", "--agents", "--limit", "1")
    assert [run, "desk.helper", "WAITING", "1", "120"] == [
        shown.out.splitlines()[1].split()[n] for n in (0, 3, 4, 5, 6)
    ]
    assert "placet capabilities --agents" in shown.err

    await decide(running)
    heard = await typed("chat", "desk.helper", "--session", session)
    assert (0, "It is refunded.\n") == (heard.code, heard.out)
    ended = await typed("resume", run)
    assert (0, "It is refunded.\n", True) == (ended.code, ended.out, f"SUCCEEDED  run {run}" in ended.err)
    cursor = told["action"]["cursor"]
    *events, last = (await typed("resume", run, "--stream", "--json", "--after", cursor)).lines
    assert ("placet.action.settled", "It is refunded.") == (events[-1]["type"], last["text"])
    whole = (await typed("resume", run, "--json")).document
    assert ("SUCCEEDED", "It is refunded.") == (whole["action"]["state"], whole["text"])


async def test_who_holds_over_a_pipe_hears_the_answer(
    desk: tuple[Server, Path], lone_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, token_file = desk
    monkeypatch.setenv("PLACET_TOKEN_FILE", str(token_file))
    monkeypatch.setattr("sys.stdin", io.StringIO("Refund it.\n"))
    talking = asyncio.create_task(
        asyncio.to_thread(lone_cli, "chat", "desk.helper", "--hold", "--timeout", "60s", "--json")
    )
    async with running.person("ben").watch_approvals(capabilities=["desk.refund"]) as told_of:
        async for news in told_of:
            if news.approval.state == decision_pb2.APPROVAL_STATE_PENDING:
                await decide(running)
                break
    *events, told = (await talking).lines
    assert ("It is refunded.", "SUCCEEDED") == (told["text"], told["action"]["state"])
    assert "tool_finished" in {name for event in events for name, value in event.items() if value}


async def test_a_conversation_gives_the_agent_what_its_instructions_ask_for(
    desk: tuple[Server, Path], lone_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, token_file = desk
    monkeypatch.setenv("PLACET_TOKEN_FILE", str(token_file))

    async def chatted(*options: str) -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO("Hello?\n"))
        return await asyncio.to_thread(lone_cli, "chat", "desk.greeter", *options)

    missing = await chatted()
    assert (True, True) == (missing.code > 0, "--argument NAME=" in missing.err), missing.err
    told = await chatted("--argument", "customer=Ann", "--budget", "turns=2", "--json")
    assert (0, "Hello.", 2) == (
        told.code,
        told.lines[-1]["text"],
        told.lines[-1]["action"]["budget"]["turns"],
    )
    assert 1 == len(running.models["hello"].requests)
