"""Effects that may have happened, and a verdict: never without evidence, nor by an answer that was not meant."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

import placet
from placet.testing import Server, server
from tests.cli.support import CommandLine, Ended, missing_server

UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"
EVIL = "\x1b]0;owned\x07\u202e"
SAID = ("--reason", "looked it up", "--evidence", "TICKET-12")
# The deadline of the attempt, and the grace of what may act after it.
OVER_SECONDS = 120

app = placet.App("doubt")


@app.tool("doubt.send", "unsafe", effect_marked=True)
async def send(context: placet.Context, text: str) -> dict[str, str]:
    """Loses the answer of its provider."""
    await context.checkpoint(f"sent {text}")
    raise OSError("connection reset")


class Desk:
    """The command line, beside a server in this process."""

    def __init__(self, cli: CommandLine, running: Server) -> None:
        self._cli = cli
        self.running = running

    async def __call__(self, *arguments: str) -> Ended:
        return await asyncio.to_thread(self._cli, *arguments)

    async def doubtful(self, text: str = "hello") -> str:
        """The id of an action whose effect is not known."""
        async with self.running.client() as client:
            with pytest.raises(placet.errors.AmbiguousError) as caught:
                await client.call("doubt.send", {"text": text})
        return caught.value.action_id

    async def state(self, action_id: str) -> str:
        return str((await self("show", action_id, "--json")).document["state"])


@pytest.fixture
async def desk(lone_cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    problem = missing_server()
    if problem is not None:
        pytest.skip(problem)
    async with server(app) as running:
        monkeypatch.setenv("PLACET_TARGET", running.target)
        monkeypatch.setenv("PLACET_TOKEN", running.token)
        monkeypatch.setenv("PLACET_HEALTH_TARGET", running.placet.health_target)
        yield Desk(lone_cli, running)


async def test_the_list_says_what_to_ask_the_provider_for(desk: Desk) -> None:
    assert "nothing is ambiguous" in (await desk("ambiguous")).out
    first, second = await desk.doubtful("a"), await desk.doubtful("b")
    shown = await desk("ambiguous")
    assert (0, True) == (shown.code, shown.out.index(first) < shown.out.index(second))
    assert "sent a" in shown.out
    assert "may act" in shown.out
    assert "placet resolve ID" in shown.err
    (one,) = (await desk("ambiguous", "--limit", "1", "--json")).document["effects"]
    assert (first, True, "AMBIGUOUS") == (
        one["action"]["action_id"],
        one["attempt_may_act"],
        one["action"]["state"],
    )
    assert [] == (await desk("ambiguous", "--capability", "no.such", "--json")).document["effects"]
    desk.running.clock.advance(OVER_SECONDS)
    assert "may act" not in (await desk("ambiguous", "--all-tenants")).out


async def test_one_screen_says_how_things_stand_and_each_thing_what_to_do(desk: Desk) -> None:
    quiet = await desk("status", "--json")
    assert [] == quiet.document["next_steps"]
    action_id = await desk.doubtful("a" + EVIL)
    refused = await desk("reconcile", action_id)
    assert (3, True) == (refused.code, "no lookup" in refused.out)
    assert 3 == (await desk("reconcile", "--all", "--look")).code
    assert 2 == (await desk("reconcile")).code
    looked = await desk("recover", "--look")
    assert (0, True, True) == (looked.code, action_id in looked.out, "nothing was changed" in looked.err)
    assert "\x1b" not in looked.out
    told = (await desk("recover", "--family", "ambiguous", "--json")).document["report"]
    ((entry,),) = (section["entries"] for section in told["sections"])
    assert (action_id, f"placet resolve {action_id} ") == (entry["id"], entry["next_step"][:52])
    assert 2 == (await desk("recover", "--family", "all")).code
    shown, found = await desk("status"), (await desk("status", "--json")).document
    missing = [
        text for text in ("in doubt", "1, the oldest since", told["report_id"]) if text not in shown.out
    ]
    assert (0, []) == (shown.code, missing), shown
    assert (1, told["report_id"]) == (found["ambiguous"]["count"], found["report"]["report_id"])


async def test_a_connector_that_does_not_answer_is_said_to_be_missing(desk: Desk) -> None:
    far = placet.App("far")

    @far.tool("far.look", "read")
    def look() -> None:
        pass

    far.agent("far.helper", model="local:placet-local", tools=["far.look"])
    async with desk.running.client() as client:
        await client.admit(far, connector="127.0.0.1:1")
    shown, found = await desk("status"), (await desk("status", "--json")).document
    assert "far.look@1" in found["unserved"]
    assert "placet capabilities far.look" in found["next_steps"]
    assert (0, True) == (shown.code, "no handler" in shown.out)


async def test_a_server_that_is_away_is_said_to_be(lone_cli: CommandLine) -> None:
    away = lone_cli("status", "--target", "127.0.0.1:1", "--json")
    assert (11, False, False) == (away.code, away.document["health"]["ok"], "server" in away.document)


async def test_what_was_done_ends_with_its_output(desk: Desk) -> None:
    action_id = await desk.doubtful()
    done = ("resolve", action_id, "done", *SAID, "--output", '{"id": "m-1"}')
    looked = await desk(*done, "--look")
    assert (0, "AMBIGUOUS") == (looked.code, await desk.state(action_id))
    assert "nothing was changed" in looked.err
    ended, again = await desk(*done, "--json"), await desk(*done, "--json")
    assert (0, 0, True) == (ended.code, again.code, ended.document["changed"])
    assert ("SUCCEEDED", {"id": "m-1"}) == (
        ended.document["action"]["state"],
        ended.document["action"]["output"],
    )
    other = await desk("resolve", action_id, "not-done", *SAID, "--json")
    assert (12, "STATE_CONFLICT") == (other.code, other.document["error"]["reason"])
    assert "nothing is ambiguous" in (await desk("ambiguous")).out


async def test_not_done_is_refused_while_the_lost_attempt_may_act(desk: Desk) -> None:
    action_id = await desk.doubtful()
    not_done = ("resolve", action_id[:18], "not-done", *SAID)
    early = await desk(*not_done, "--json")
    assert (12, "attempt_may_act") == (early.code, early.document["error"]["metadata"]["rule"])
    desk.running.clock.advance(OVER_SECONDS)
    ended = await desk(*not_done)
    assert 0 == ended.code
    assert "FAILED" in ended.out
    assert "not_done" in ended.out
    assert 4 == (await desk("watch", action_id)).code


async def test_a_verdict_on_another_attempt_or_with_another_output_is_refused(desk: Desk) -> None:
    action_id = await desk.doubtful()
    stale = await desk("resolve", action_id, "done", *SAID, "--output", "{}", "--attempt", "2", "--json")
    assert (12, "STALE_DIGEST") == (stale.code, stale.document["error"]["reason"])
    unfit = await desk("resolve", action_id, "done", *SAID, "--json")
    assert (3, "MALFORMED_REQUEST") == (unfit.code, unfit.document["error"]["reason"])
    assert 3 == (await desk("resolve", action_id, "done", *SAID, "--output", "{not JSON")).code
    assert 9 == (await desk("resolve", UNKNOWN_ID, "done", *SAID, "--output", "{}")).code
    assert "AMBIGUOUS" == await desk.state(action_id)


@pytest.mark.parametrize(("answer", "code", "state"), [(False, 130, "AMBIGUOUS"), (True, 0, "SUCCEEDED")])
async def test_whoever_types_it_is_asked_first(
    answer: bool, code: int, state: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    action_id = await desk.doubtful(EVIL)
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    ended = await desk("resolve", action_id, "done", *SAID, "--output", "{}")
    assert (code, state) == (ended.code, await desk.state(action_id))
    assert ["Its effect happened: SUCCEEDED. Nobody can take this back. Is it so?"] == asked
    assert "TICKET-12" in ended.out
    assert not set(EVIL) & set(ended.out) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize("answered", ["--yes", "--json", "--look"])
async def test_a_script_is_not_asked(answered: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    action_id = await desk.doubtful()
    assert 0 == (await desk("resolve", action_id, "done", *SAID, "--output", "{}", answered)).code


@pytest.mark.parametrize(
    "arguments",
    [
        ("done",),
        ("done", "--reason", "r"),
        ("done", "--evidence", "e"),
        ("done", "--reason", " ", "--evidence", "e"),
        ("maybe", "--reason", "r", "--evidence", "e"),
        ("not-done", "--reason", "r", "--evidence", "e", "--output", "{}"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...], lone_cli: CommandLine) -> None:
    ended = lone_cli("resolve", UNKNOWN_ID, *arguments, "--target", "127.0.0.1:1")
    assert (2, "") == (ended.code, ended.out)
    assert ended.err


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
async def test_foreign_text_is_shown_as_text(is_json: bool, desk: Desk) -> None:
    more = ("--json",) if is_json else ()
    action_id = await desk.doubtful(EVIL)
    said = ("--reason", EVIL, "--evidence", EVIL)
    shown = [
        await desk("ambiguous", *more),
        await desk("resolve", action_id, "done", *said, "--output", '{"a": "\u202e"}', *more),
        await desk("watch", action_id, *more),
        await desk("resolve", EVIL, "done", *said, *more),
    ]
    assert [0, 0, 0, 2] == [ended.code for ended in shown]
    assert "\\u202e" in shown[0].out
    for ended in shown:
        assert not set(EVIL) & set(ended.out + ended.err) & {"\x1b", "\x07", "\u202e"}
