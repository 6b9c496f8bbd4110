"""Work that nobody waits for, from the command line: what is said of it must be true, for people and for scripts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from placet_server.cli.queue import span_text
from tests.cli.support import CommandLine

LOOKUP = ("submit", "orders.lookup", '{"order": "A-1001"}')
LOST = ("submit", "orders.lookup", '{"order": "A-9"}')
UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"


def _dead(cli: CommandLine, queue: str) -> str:
    """The id of a dead letter."""
    ended = cli(*LOST, "--queue", queue, "--wait", "30s", "--json")
    assert 4 == ended.code
    return str(ended.lines[-1]["error"]["action_id"])


def test_the_id_is_on_stdout_and_watching_it_ends_with_the_outcome(cli: CommandLine) -> None:
    ended = cli(*LOOKUP, "--queue", "first", "--priority", "2", "--key", "first-1")
    action_id = ended.out.strip()
    assert (0, 36) == (ended.code, len(action_id))
    assert f"stored in queue first; a server runs it, key first-1: placet watch {action_id}" in ended.err
    watched = cli("watch", action_id)
    assert 0 == watched.code
    assert "in queue first\n" in watched.out
    assert "  first, priority 2" in cli("show", action_id).out


def test_json_is_the_action_as_it_was_stored(cli: CommandLine) -> None:
    ended = cli(*LOOKUP, "--key", "json-1", "--label", "team=billing", "--json")
    action = ended.document["action"]
    assert ("", False, "QUEUED", 0) == (
        ended.err,
        ended.document["attached"],
        action["state"],
        action["attempt"],
    )
    assert ("default", 5, {"team": "billing"}) == (action["queue"], action["priority"], action["labels"])


def test_a_known_key_adds_nothing_and_says_so(cli: CommandLine) -> None:
    first = cli(*LOOKUP, "--key", "twice")
    again = cli(*LOOKUP, "--key", "twice")
    assert (0, first.out) == (again.code, again.out)
    assert "its key was known, nothing is added" in again.err
    assert 12 == cli("submit", "orders.lookup", '{"order": "A-1002"}', "--key", "twice").code


def test_waiting_prints_the_output_and_ends_with_the_outcome(cli: CommandLine) -> None:
    done = cli(*LOOKUP, "--wait", "30s")
    assert 0 == done.code
    assert "alice@example.com" in done.out
    failed = cli(*LOST, "--wait", "30s")
    assert (4, "") == (failed.code, failed.out)
    assert "no_such_order" in failed.err
    document = cli(*LOOKUP, "--wait", "30s", "--json").document
    assert ("SUCCEEDED", "A-1001") == (document["action"]["state"], document["action"]["output"]["order"])


def test_a_wait_that_ends_first_is_pending_and_names_the_action(cli: CommandLine) -> None:
    ended = cli(*LOOKUP, "--delay", "1h", "--wait", "500ms", "--json")
    error = ended.lines[-1]["error"]
    assert (8, "PENDING", "WAIT_EXPIRED") == (ended.code, error["kind"], error["reason"])
    shown = cli("show", error["action_id"]).out
    assert "QUEUED" in shown
    assert "not before" in shown
    assert 0 == cli("cancel", error["action_id"]).code


def test_a_refused_submission_has_the_code_of_its_refusal(cli: CommandLine) -> None:
    assert 3 == cli("submit", "orders.lookup", '{"order": 7}').code
    assert 3 == cli(*LOOKUP, "--queue", "No Queue").code
    assert 9 == cli("submit", "no.such").code


def test_queues_show_what_waits_until_nothing_does(cli: CommandLine) -> None:
    action_id = cli(*LOOKUP, "--queue", "nightly", "--at", "2035-01-31T02:00:00Z").out.strip()
    (found,) = [queue for queue in cli("queues", "--json").document["queues"] if queue["name"] == "nightly"]
    assert {
        "name": "nightly",
        "ready": 0,
        "delayed": 1,
        "unroutable": 0,
        "oldest": None,
        "paused": False,
        "paused_reason": "",
        "pause_time": None,
        "claims_per_second": 0.0,
        "settles_per_second": 0.0,
    } == found
    assert "nightly  0      1" in cli("queues").out
    assert "in queue nightly, not before 2035-01-31T02:00:00" in cli("show", action_id, "--events").out
    cli("cancel", action_id)
    assert 5 == cli("watch", action_id).code
    assert "nightly" not in cli("queues").out


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.9, "59s"), (192, "3m 12s"), (3600, "1h"), (190_000, "2d 4h")]
)
def test_spans_are_said_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert text == span_text(seconds)


def test_a_dead_letter_is_listed_and_a_look_changes_nothing(cli: CommandLine) -> None:
    action_id = _dead(cli, "graves")
    (letter,) = cli("dead", "--queue", "graves", "--json").document["actions"]
    assert (action_id, "FAILED", "no_such_order") == (
        letter["action_id"],
        letter["state"],
        letter["outcome"]["failure_code"],
    )
    assert "no_such_order" in cli("dead", "--queue", "graves", "--reason-of-death", "handler_failed").out
    assert "no dead letters" in cli("dead", "--queue", "graves", "--reason-of-death", "QUEUE_DELAY").out
    looked = cli("redrive", "--queue", "graves", "--look")
    assert 0 == looked.code
    assert "1 action would be tried again: nothing was changed" in looked.err
    assert ("FAILED", 1) == (_shown(cli, action_id)["state"], _shown(cli, action_id)["generation"])


def test_a_redriven_action_begins_and_ends_again(cli: CommandLine) -> None:
    action_id = _dead(cli, "again")
    ended = cli("redrive", action_id[:18], "--reason", "it was found", "--attempts", "2", "--json")
    assert [(True, "QUEUED", action_id)] == [
        (each["changed"], each["state"], each["action_id"]) for each in ended.document["results"]
    ]
    watched = cli("watch", action_id, "--json")
    kinds = [line["type"].rpartition(".")[2] for line in watched.lines]
    assert (4, 2, 1) == (watched.code, kinds.count("settled"), kinds.count("redriven"))
    assert "generation 2, 2 attempts at most, by developer: it was found" in cli("watch", action_id).out
    assert "it was found" in cli("show", action_id, "--events").out
    assert 2 == _shown(cli, action_id)["generation"]


def test_each_refusal_says_why_and_the_code_says_how_many(cli: CommandLine) -> None:
    done = cli(*LOOKUP, "--wait", "30s", "--json").document["action"]["action_id"]
    refused = cli("redrive", done)
    assert 3 == refused.code
    assert "its effect is done" in refused.out
    assert "0 actions tried again, 1 refused" in refused.err
    some = cli("redrive", done, _dead(cli, "mixed"))
    assert 12 == some.code
    assert "1 action tried again, 1 refused" in some.err
    unknown = cli("redrive", UNKNOWN_ID, "--json")
    assert (9, "not_found", "") == (
        unknown.code,
        unknown.document["results"][0]["refused_rule"],
        unknown.document["results"][0]["state"],
    )
    assert "no dead letters match" in cli("redrive", "--queue", "never-used").out


@pytest.mark.parametrize(("answer", "code", "generation"), [(False, 130, 1), (True, 0, 2)])
def test_whoever_types_a_filter_is_asked_first(
    answer: bool, code: int, generation: int, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = f"asked-{code}"
    action_id = _dead(cli, queue)
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    assert code == cli("redrive", "--queue", queue).code
    assert ["1 action of 1 can be tried again. Try them?"] == asked
    cli("watch", action_id)
    assert generation == _shown(cli, action_id)["generation"]


def test_a_script_is_not_asked(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    _dead(cli, "script")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert 0 == cli("redrive", "--queue", "script", "--yes").code
    _dead(cli, "script")
    assert 0 == cli("redrive", "--queue", "script", "--json").code


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "a.b", "--delay", "1h", "--at", "2035-01-31T02:00:00Z"),
        ("submit", "a.b", "--at", "tomorrow"),
        ("submit", "a.b", "--priority", "10"),
        ("redrive",),
        ("redrive", "--look"),
        ("redrive", UNKNOWN_ID, "--queue", "default"),
        ("dead", "--limit", "0"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...], lone_cli: CommandLine) -> None:
    ended = lone_cli(*arguments, "--target", "127.0.0.1:1")
    assert (2, "") == (ended.code, ended.out)
    assert ended.err


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_foreign_text_is_shown_as_text(is_json: bool, cli: CommandLine) -> None:
    evil = "\x1b]0;owned\x07\u202e"
    more = ("--json",) if is_json else ()
    action_id = _dead(cli, f"evil-{is_json}".lower())
    shown = [
        cli("redrive", action_id, "--reason", evil, *more),
        cli("watch", action_id, *more),
        cli("dead", "--capability", evil, *more),
        cli("submit", f"no.{evil}", *more),
        cli(*LOOKUP, "--queue", evil, *more),
        cli(*LOOKUP, "--key", evil, *more),
    ]
    assert [0, 4, 0] == [ended.code for ended in shown[:3]]
    for ended in shown:
        assert not set(evil) & set(ended.out + ended.err) & {"\x1b", "\x07", "\u202e"}
    assert "\\u202e" in shown[1].out


def _shown(cli: CommandLine, action_id: str) -> Any:
    return cli("show", action_id, "--json").document
