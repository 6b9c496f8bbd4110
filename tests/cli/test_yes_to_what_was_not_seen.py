"""A yes counts for exactly what its giver has seen, once, and only if it was meant."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.cli.people import SAID, Office, named
from tests.cli.support import COMMAND, clean_environment
from tests.terminal import at_a_terminal

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"
EVIL = "\x1b]0;owned\x07\u202e\r\nstate  GRANTED"
HIDDEN = {"\x1b", "\x07", "\u202e", "\r"}


async def test_two_people_say_yes_and_a_server_runs_it(office: Office) -> None:
    found = await office.asked()
    first = await office("anna", "approve", named(found), *SAID)
    assert (0, True) == (first.code, "still needed is 1 of role:finance" in first.out)
    again = await office("anna", "approve", named(found), *SAID, "--json")
    assert "PENDING" == again.document["results"][0]["approval"]["state"]
    second = await office("ben", "approve", named(found), *SAID, "--json")
    assert "GRANTED" == second.document["results"][0]["approval"]["state"]
    watched = await office("", "watch", found["action_id"])
    assert (0, True) == (watched.code, "yes from ben" in watched.out)
    shown = await office("", "show", found["approval_id"])
    assert all(text in shown.out for text in ("GRANTED, and begun", "yes from anna", "yes from ben"))


async def test_nobody_decides_by_an_id_alone_without_a_terminal(office: Office) -> None:
    found = await office.asked()
    for arguments in (
        ("approve", found["approval_id"]),
        ("deny", found["action_id"]),
        ("approve", named(found), "1234"),
    ):
        ended = await office("anna", *arguments, *SAID)
        assert (2, True) == (ended.code, "ID@DIGEST" in ended.err)
    assert [] == (await office("anna", "show", found["approval_id"], "--json")).document["decisions"]


async def test_another_digest_than_that_of_what_stands_there_is_refused_and_told(office: Office) -> None:
    found, other = await office.asked("A-1"), await office.asked("A-2")
    wrong = f"{found['approval_id']}@{other['digest']}"
    ended = await office("anna", "approve", wrong, *SAID, "--json")
    assert (12, "STALE_DIGEST") == (ended.code, ended.document["error"]["reason"])
    told = await office("anna", "approve", wrong, *SAID)
    assert (12, True) == (told.code, "not what was looked at" in told.err)
    assert 2 == (await office("anna", "approve", found["approval_id"], "--digest", "abc", *SAID)).code
    assert [] == (await office("anna", "show", found["approval_id"], "--json")).document["decisions"]


async def test_who_may_not_decide_is_told_why(office: Office) -> None:
    found = await office.asked()
    for who, problem in (("", "you asked for it"), ("carl", "neither you nor a role")):
        assert problem in (await office(who, "show", found["approval_id"])).out
        ended = await office(who, "approve", named(found), *SAID, "--json")
        assert (10, "NOT_ELIGIBLE") == (ended.code, ended.document["error"]["reason"])
        assert "nothing waits for you" in (await office(who, "inbox")).out
    shown = await office("carl", "inbox", "--all")
    assert "neither you nor a role" in shown.out


async def test_of_several_each_counts_by_itself(office: Office) -> None:
    first, second = await office.asked("A-1"), await office.asked("A-2")
    wrong = f"{second['approval_id']}@{first['digest']}"
    some = await office("anna", "approve", named(first), wrong, *SAID)
    assert (12, True, True) == (some.code, "1 vote of 2 not counted" in some.err, "still needed" in some.out)
    both = await office("anna", "approve", named(first), named(second), *SAID, "--json")
    assert (0, 2) == (both.code, len(both.document["results"]))
    assert (
        2
        == (
            await office("anna", "approve", named(first), f"{first['action_id']}@{first['digest']}", *SAID)
        ).code
    )
    none = await office("carl", "deny", named(first), named(second), "--json")
    assert 10 == none.code
    assert {"NOT_ELIGIBLE"} == {result["error"]["reason"] for result in none.document["results"]}


async def test_a_no_ends_it_with_what_would_rather_be_seen(office: Office) -> None:
    found = await office.asked()
    unfit = await office("anna", "deny", named(found), "--suggest", '{"order": 1}', "--json")
    assert (3, "INPUT_SCHEMA_VIOLATION") == (unfit.code, unfit.document["error"]["reason"])
    rather = '{"order": "A-1", "amount": "1.00"}'
    denied = await office("anna", "deny", named(found), "--reason", "too much", "--suggest", rather)
    assert (0, True) == (denied.code, "DENIED: nothing of it runs" in denied.out)
    watched = await office("", "watch", found["action_id"])
    assert (14, True) == (watched.code, "no from anna: too much" in watched.out)
    resumed = await office("", "resume", found["action_id"])
    assert (14, True) == (resumed.code, "APPROVAL_DENIED" in resumed.err)
    assert "rather" in (await office("", "show", found["approval_id"])).out
    late = await office("ben", "approve", named(found), *SAID, "--json")
    assert (12, "STATE_CONFLICT") == (late.code, late.document["error"]["reason"])


@pytest.mark.parametrize(("answer", "code"), [(False, 130), (True, 0)])
async def test_whoever_is_at_a_terminal_sees_all_of_them_and_is_asked_once(
    answer: bool, code: int, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [await office.asked("A-1"), await office.asked("A-2")]
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("placet_server.cli.decide.is_person", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    ended = await office("anna", "approve", *(each["approval_id"] for each in found), *SAID)
    assert (code, ["Say yes to these 2, each as it is shown?"]) == (ended.code, asked)
    assert all(
        text in ended.out for each in found for text in (each["digest"], f'"{each["input"]["order"]}"')
    )
    votes = [
        (await office("anna", "show", each["approval_id"], "--json")).document["decisions"] for each in found
    ]
    assert ([1, 1] if answer else [0, 0]) == [len(each) for each in votes]


@pytest.mark.parametrize(
    ("who", "arguments", "code"),
    [
        ("", SAID, 10),
        ("carl", SAID, 10),
        ("anna", (), 2),
        ("anna", ("--digest", "0" * 64, *SAID), 12),
    ],
    ids=["requester", "not selected", "no evidence", "another digest"],
)
async def test_what_cannot_count_is_not_even_asked(
    who: str, arguments: tuple[str, ...], code: int, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(*_: Any, **__: Any) -> bool:
        raise AssertionError("it was asked")

    found, other = await office.asked("A-1"), await office.asked("A-2")
    monkeypatch.setattr("placet_server.cli.decide.is_person", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    if "--digest" in arguments:
        # Of two, so that the other one has to be asked about.
        ids: tuple[str, ...] = (f"{found['approval_id']}@{'0' * 64}", other["approval_id"])
        arguments = SAID
    else:
        ids = (found["approval_id"],)
    ended = await office(who, "approve", *ids, *arguments)
    assert code == ended.code, ended.err


async def test_ctrl_c_at_the_question_changes_nothing(office: Office) -> None:
    found = await office.asked()
    environment = clean_environment(PLACET_TOKEN_FILE=str(office.token_file("anna")), TERM="dumb")
    command = [*COMMAND, "approve", found["approval_id"], *SAID]
    code, seen = await asyncio.to_thread(_interrupted, command, environment, "Say yes to this?")
    assert (130, True) == (code, found["digest"] in seen)
    assert [] == (await office("anna", "show", found["approval_id"], "--json")).document["decisions"]


async def test_an_inbox_stays_until_ctrl_c(office: Office) -> None:
    found = await office.asked(f"A-1{EVIL}")
    environment = clean_environment(
        PLACET_TOKEN_FILE=str(office.token_file("anna")), TERM="xterm", COLUMNS="200"
    )
    wanted = found["approval_id"]
    code, seen = await asyncio.to_thread(_interrupted, [*COMMAND, "inbox"], environment, wanted)
    assert (0, False) == (code, "\u202e" in seen)


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
async def test_foreign_text_makes_up_no_line_of_its_own(is_json: bool, office: Office) -> None:
    more = ("--json",) if is_json else ()
    found = await office.asked(f"A-1{EVIL}", amount="p\u0430id", note=EVIL)
    shown = [
        await office("anna", "show", found["approval_id"], *more),
        await office("anna", "inbox", *more),
        await office("anna", "approve", named(found), "--reason", EVIL, *more),
        await office("ben", "deny", named(found), "--reason", EVIL, "--evidence", f"ticket={EVIL}", *more),
        await office("", "watch", found["action_id"], *more),
        await office("", "show", found["approval_id"], *more),
        await office("", "call", "till.refund", "{}", "--key", "B-1", "--label", f"why={EVIL}", *more),
    ]
    assert [0, 0, 0, 0, 14, 0] == [ended.code for ended in shown[:6]]
    for ended in shown:
        assert not HIDDEN & set(ended.out + ended.err)
        if not is_json:
            assert not any(line.startswith("state  GRANTED") for line in ended.out.splitlines())
    assert "\\u202e" in shown[0].out
    if not is_json:
        assert "LOOKS ALIKE: U+0430 CYRILLIC SMALL LETTER A" in shown[0].out


async def test_an_input_of_three_megabytes_is_cut_and_says_so(office: Office) -> None:
    found = await office.asked("A-1", note="x" * 3_000_000 + "the end")
    shown = await office("anna", "show", found["approval_id"])
    assert len(shown.out) < 10_000
    assert all(text in shown.out for text in ("CUT: 3000007 characters in all, SHA-256", 'the end"', '"A-1"'))
    assert found["digest"] == shown.out.rstrip().rpartition(" ")[2]


async def test_an_id_may_be_that_of_the_action_or_a_beginning_of_either(office: Office) -> None:
    found = await office.asked()
    for id_ in (found["action_id"], found["approval_id"], found["approval_id"][:23]):
        ended = await office("anna", "approve", f"{id_}@{found['digest']}", *SAID, "--json")
        assert found["approval_id"] == ended.document["results"][0]["approval_id"]
    assert 9 == (await office("anna", "approve", f"{UNKNOWN_ID}@{'0' * 64}")).code
    assert 9 == (await office("anna", "show", "ffffffff")).code
    assert 2 == (await office("anna", "show", "refund")).code


async def test_a_call_says_what_it_waits_for_and_what_decides_it(office: Office) -> None:
    call = ("call", "till.refund", '{"order": "A-1"}', "--key", "wait-1")
    failed = await office("", *call)
    assert (13, True) == (failed.code, "placet approve" in failed.err)
    returned = await office("", *call, "--on-wait", "return", "--json")
    assert (13, "WAITING") == (returned.code, returned.document["action"]["state"])
    held = await office("", *call, "--on-wait", "hold", "--timeout", "2s", "--json")
    # Said by the server in time, or else looked up after it.
    assert (held.code, held.document["error"]["reason"]) in ((8, "WAIT_EXPIRED"), (13, "APPROVAL_REQUIRED"))
    assert 1 == len(held.document["error"]["waits"])
    streamed = await office("", *call, "--on-wait", "return", "--stream")
    assert (0, True) == (streamed.code, "waiting" in streamed.out)
    assert 2 == (await office("", *call, "--on-wait", "never")).code
    waiting = await office("", "ls", "--state", "waiting", "--json")
    assert held.document["error"]["action_id"] in {each["action_id"] for each in waiting.document["actions"]}
    status = await office("anna", "status", "--json")
    assert status.document["approvals"]["pending"] >= status.document["approvals"]["yours"] >= 1
    assert "placet inbox" in status.document["next_steps"]


async def test_who_looks_at_it_says_so_and_keeps_nobody_from_deciding(office: Office) -> None:
    found = await office.asked()
    claimed = await office("ben", "claim", found["approval_id"], "--for", "5m")
    assert (0, True) == (claimed.code, "ends in 4 min" in claimed.out)
    assert "claimed by ben" in (await office("anna", "inbox")).out
    assert 12 == (await office("anna", "claim", found["approval_id"])).code
    assert 0 == (await office("anna", "approve", named(found), *SAID)).code
    assert 0 == (await office("ben", "release", found["approval_id"])).code
    assert "claimed by ben" not in (await office("ben", "inbox")).out


async def test_a_yes_is_taken_back_until_it_begins(office: Office) -> None:
    found = await office.asked()
    assert 9 == (await office("anna", "revoke", found["approval_id"])).code
    assert 0 == (await office("anna", "approve", named(found), *SAID)).code
    revoked = await office("anna", "revoke", found["action_id"], "--reason", "the wrong one")
    assert (0, True) == (revoked.code, "taken back; PENDING" in revoked.out)
    shown = await office("ben", "show", found["approval_id"])
    assert all(text in shown.out for text in ("TAKEN BACK", "2 of role:finance", "may decide it"))
    again = await office("anna", "approve", named(found), *SAID, "--json")
    assert (12, "taken_back") == (again.code, again.document["error"]["metadata"]["rule"])


async def test_a_question_is_answered_by_what_fits_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = json.dumps(
        {
            "title": "Which account?",
            "prompt": f"Two fit.{EVIL}",
            "choices": ["1200", "1210"],
            "to": "user:anna",
        }
    )
    submitted = (await office("", "submit", "human.input", question, "--json")).document["action"]
    (wait,) = submitted["outcome"]["waits"]
    found = (await office("anna", "show", wait["approval_id"], "--json")).document
    shown = await office("anna", "show", wait["approval_id"])
    assert ("1200" in shown.out, HIDDEN & set(shown.out)) == (True, set())
    assert not any(line.startswith("state  GRANTED") for line in shown.out.splitlines())
    digest = ("--digest", found["digest"])
    assert 2 == (await office("anna", "answer", wait["approval_id"], "1200")).code
    assert 3 == (await office("anna", "approve", named(found))).code
    unfit = await office("anna", "answer", wait["approval_id"], "1300", *digest)
    assert (3, True) == (unfit.code, "not one of the choices" in unfit.err)
    typed = iter(("7", "2"))
    monkeypatch.setattr("placet_server.cli.vote.is_person", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(typed))
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    answered = await office("anna", "answer", wait["approval_id"])
    assert (0, True) == (answered.code, "a number from 1 to 2" in answered.err)
    again = await office("anna", "answer", wait["approval_id"], "1210", *digest)
    assert 0 == again.code
    ended = (await office("", "watch", submitted["action_id"], "--json")).lines[-1]
    assert "1210" == ended["settled"]["output"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("approve", UNKNOWN_ID, "--evidence", "mood=good"),
        ("approve", UNKNOWN_ID, "--evidence", "ticket="),
        ("approve", UNKNOWN_ID, UNKNOWN_ID, "--digest", "0" * 64),
        ("deny", UNKNOWN_ID, UNKNOWN_ID, "--suggest", "{}"),
        ("approve",),
        ("answer", UNKNOWN_ID, "1200"),
    ],
    ids=" ".join,
)
async def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...], lone_cli: Any) -> None:
    ended = lone_cli(*arguments, "--target", "127.0.0.1:1")
    assert (2, "") == (ended.code, ended.out)


def _interrupted(command: list[str], environment: dict[str, str], wanted: str) -> tuple[int, str]:
    """By Ctrl-C at a terminal, once it has shown what is `wanted`: exit code, and what was shown."""
    with at_a_terminal(command, environment) as terminal:
        seen = ""
        while wanted not in seen:
            part = terminal.read()
            assert part, seen
            seen += part
        terminal.type("\x03")
        return terminal.process.wait(60), seen
