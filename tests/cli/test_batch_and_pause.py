"""Many submissions from lines, and queues that are stopped: from the command line."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from placet.errors import TransportError, UnavailableError
from placet_server.cli import batch
from placet_server.cli.exit_code import ExitCode
from tests.cli.support import CommandLine

LOOKUP = {"capability": "orders.lookup", "input": {"order": "A-1001"}}
UNKNOWN_ID = "00000000-0000-7000-8000-000000000000"
EVIL = "\x1b]0;owned\x07\u202e"

Lines = Callable[..., str]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """A file with these lines; what is no text is written as JSON."""

    def write(*each: Any) -> str:
        path = tmp_path / "batch.jsonl"
        texts = [one if isinstance(one, str) else json.dumps(one) for one in each]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", errors="surrogatepass")
        return str(path)

    return write


def test_each_line_has_a_result_line_of_its_own(cli: CommandLine, lines: Lines) -> None:
    path = lines(
        {**LOOKUP, "key": "batch-1", "queue": "batch", "priority": 0, "labels": {"team": "billing"}},
        "",
        {"capability": "orders.lookup", "input": {"order": 7}},
        "{not JSON",
        {**LOOKUP, "key": "batch-1", "queue": "batch"},
        {"capability": "no.such"},
    )
    ended = cli("submit", "--batch", path, "--json")
    first, third, fourth, fifth, sixth = ended.lines
    assert (12, [1, 3, 4, 5, 6]) == (ended.code, [line["line"] for line in ended.lines])
    assert ("QUEUED", False, True) == (first["state"], first["attached"], fifth["attached"])
    assert first["action_id"] == fifth["action_id"]
    assert ("INPUT_SCHEMA_VIOLATION", 3, "/order") == (
        third["error"]["reason"],
        third["error"]["exit_code"],
        third["error"]["violations"][0]["field"],
    )
    assert ("LINE_REFUSED", 3) == (fourth["error"]["kind"], fourth["error"]["exit_code"])
    assert ("CAPABILITY_NOT_FOUND", 9) == (sixth["error"]["reason"], sixth["error"]["exit_code"])
    shown = cli("show", first["action_id"], "--json").document
    assert ("batch", 0, {"team": "billing"}) == (shown["queue"], shown["priority"], shown["labels"])
    assert 0 == cli("watch", first["action_id"], "--after", first["cursor"]).code


def test_the_same_file_again_stores_nothing_and_says_so(cli: CommandLine, lines: Lines) -> None:
    path = lines({**LOOKUP, "key": "again-1"}, {**LOOKUP, "key": "again-2"})
    first, again = cli("submit", "--batch", path), cli("submit", "--batch", path)
    assert (0, 0) == (first.code, again.code)
    assert ["1", "2"] == [line.split()[0] for line in first.out.splitlines()]
    assert [line.split()[1] for line in first.out.splitlines()] == [
        line.split()[1] for line in again.out.splitlines()
    ]
    assert again.out.count("its key was known, nothing is added") == 2
    assert "2 stored, 0 known by their keys, 0 not stored" in first.err
    assert "0 stored, 2 known by their keys, 0 not stored" in again.err


def test_options_say_what_lines_do_not(cli: CommandLine, lines: Lines) -> None:
    path = lines(LOOKUP, {**LOOKUP, "queue": "own", "at": "2035-01-31T02:00:00Z"})
    ended = cli("submit", "--batch", path, "--queue", "given", "--delay", "1h", "--label", "a=b", "--json")
    assert 0 == ended.code
    shown = [cli("show", line["action_id"], "--json").document for line in ended.lines]
    assert [("given", {"a": "b"}), ("own", {"a": "b"})] == [(each["queue"], each["labels"]) for each in shown]
    assert "2035-01-31T02:00:00Z" == shown[1]["ready_time"]
    assert shown[0]["ready_time"] > shown[0]["create_time"]
    which = ("cancel", "--all", "--label", "a=b", "--capability", "orders.lookup")
    assert "2 actions would be asked to stop: nothing was changed" in cli(*which, "--look").out
    assert {"matched": 2, "marked": 2, "ended": 2} == cli(*which, "--json").document
    assert "0 actions matched, 0 asked to stop" in cli(*which).out


@pytest.mark.parametrize(
    "which", [(), ("--all",), ("--all", "0199"), ("0199", "--queue", "q"), ("--all", "--state", "resting")]
)
def test_a_cancel_that_says_not_which_or_too_much_changes_nothing(
    cli: CommandLine, which: tuple[str, ...]
) -> None:
    assert 2 == cli("cancel", *which).code


def test_more_lines_than_travel_at_once_come_in_order_from_stdin(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"".join(json.dumps({**LOOKUP, "key": f"many-{n}"}).encode() + b"\n" for n in range(620))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    ended = cli("submit", "--batch", "-", "--queue", "many", "--json")
    assert (0, list(range(1, 621))) == (ended.code, [line["line"] for line in ended.lines])
    assert 620 == len({line["action_id"] for line in ended.lines})


def test_no_lines_are_no_error(cli: CommandLine, lines: Lines) -> None:
    ended = cli("submit", "--batch", lines("", "  "))
    assert (0, "") == (ended.code, ended.out)
    assert "0 stored" in ended.err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ('{"capability": "a.b", "inputs": {}}', "no member 'inputs'"),
        ('{"capability": "a.b", "capability": "a.c"}', "a member is repeated"),
        ('{"capability": "a.b", "input": {"a": 1, "a": 2}}', "a member is repeated"),
        ('{"capability": "a.b", "input": 0.1000000000000000055511151231257827}', "not carried exactly"),
        ('{"capability": "a.b", "input": 1e999}', "not carried exactly"),
        ('{"capability": "a.b", "input": NaN}', "not JSON"),
        ('{"capability": "a.b", "input": "\\ud800"}', "surrogates"),
        ('{"capability": "a.b", "priority": 10}', "from 0 to 9"),
        ('{"capability": "a.b", "priority": true}', "from 0 to 9"),
        ('{"capability": "a.b", "delay": "soon"}', "say a span"),
        ('{"capability": "a.b", "at": "tomorrow"}', "say a time"),
        ('{"capability": "a.b", "at": "2035-01-31T02:00:00Z", "delay": 1}', "exclude each other"),
        ('{"capability": "a.b", "labels": {"a": 1}}', "object of texts"),
        ('{"capability": 7}', "must be a text"),
        ('{"input": {}}', "must be a text"),
        ("[" * 100_000, "it cannot be read"),
    ],
)
def test_a_line_that_cannot_be_meant_is_never_sent(
    line: str, why: str, lone_cli: CommandLine, lines: Lines
) -> None:
    ended = lone_cli("submit", "--batch", lines(line), "--target", "127.0.0.1:1", "--json")
    assert 3 == ended.code
    error = ended.lines[0]["error"]
    assert "LINE_REFUSED" == error["kind"]
    assert why in error["message"] or "recursion" in error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit",),
        ("submit", "a.b", "--batch", "x"),
        ("submit", "--batch", "x", "--key", "k"),
        ("submit", "--batch", "x", "--wait", "1s"),
        ("submit", "--batch", "x", "--delay", "soon"),
        ("submit", "--batch", "/nowhere/at/all"),
        ("queues", "pause"),
        ("queues", "--all-tenants", "pause", "nightly"),
        ("queues", "stop", "nightly"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...], lone_cli: CommandLine) -> None:
    ended = lone_cli(*arguments, *(("--target", "127.0.0.1:1") if "queues" not in arguments else ()))
    assert (2, "") == (ended.code, ended.out)
    assert ended.err


class _Away:
    """A client whose server is gone after so many batches."""

    def __init__(self, answered: int, error: Exception) -> None:
        self.answered, self.error, self.sizes = answered, error, list[int]()

    def submit_batch(self, items: list[Any], *, timeout: float) -> list[Any]:
        assert timeout > 0
        self.sizes.append(len(items))
        if len(self.sizes) > self.answered:
            return [self.error] * len(items)
        action = SimpleNamespace(state=1, cursor="c")
        return [SimpleNamespace(action_id=UNKNOWN_ID, action=action, attached=False)] * len(items)


@pytest.mark.parametrize(
    "error",
    [TransportError("gone", code="UNAVAILABLE"), UnavailableError("full", code="UNAVAILABLE")],
    ids=lambda error: type(error).__name__,
)
def test_nothing_more_is_sent_to_a_server_that_has_gone(
    error: Exception, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    client: Any = _Away(1, error)
    path = lines(*[LOOKUP] * 700, "{", *[LOOKUP] * 900)
    code = batch.submit_batch(client, path, {}, is_json=False)
    captured = capsys.readouterr()
    assert (ExitCode.UNAVAILABLE, [500, 499]) == (code, client.sizes)
    assert 1000 == len(captured.out.splitlines())
    assert "stopped after line 1000" in captured.err
    assert "500 stored, 0 known by their keys, 500 not stored" in captured.err


def test_whoever_waits_long_is_told_how_far_it_is(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batch, "SILENT_SECONDS", 0.0)
    client: Any = _Away(9, ValueError())
    assert 0 == batch.submit_batch(client, lines(*[LOOKUP] * 501), {}, is_json=True)
    captured = capsys.readouterr()
    assert "so far: 500 stored" in captured.err
    assert 501 == len([json.loads(line) for line in captured.out.splitlines()])


def test_large_lines_travel_in_smaller_groups(lines: Lines) -> None:
    client: Any = _Away(9, ValueError())
    assert 0 == batch.submit_batch(client, lines(*[{**LOOKUP, "input": "x" * 2**20}] * 5), {}, is_json=True)
    assert [3, 2] == client.sizes


def test_a_paused_queue_begins_nothing_until_it_is_resumed(cli: CommandLine) -> None:
    paused = cli("queues", "pause", "stopped", "--reason", "repairs")
    assert (0, "") == (paused.code, paused.err)
    assert "stopped is paused: nothing of it begins (repairs); 0 ready, 0 delayed" in paused.out
    ended = cli("submit", "orders.lookup", '{"order": "A-1001"}', "--queue", "stopped", "--wait", "1s")
    assert 8 == ended.code
    shown = cli("queues").out
    assert "PAUSED" in shown
    assert "repairs" in shown
    (found,) = [each for each in cli("queues", "--json").document["queues"] if each["name"] == "stopped"]
    assert (True, "repairs", 1) == (found["paused"], found["paused_reason"], found["ready"])
    resumed = cli("queues", "resume", "stopped", "--json")
    assert (0, False, "") == (resumed.code, resumed.document["paused"], resumed.document["paused_reason"])
    assert 0 == cli("queues", "resume", "stopped").code
    again = cli("submit", "orders.lookup", '{"order": "A-1001"}', "--queue", "stopped", "--wait", "30s")
    assert 0 == again.code
    assert 3 == cli("queues", "pause", "Not a name").code


def test_a_pause_of_all_tenants_is_an_operators(cli: CommandLine) -> None:
    assert 0 == cli("queues", "pause", "everywhere", "--all-tenants").code
    assert "everywhere is paused" in cli("queues", "resume", "everywhere").out
    assert "everywhere is not paused" in cli("queues", "resume", "everywhere", "--all-tenants").out


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
def test_foreign_text_is_shown_as_text(is_json: bool, cli: CommandLine, lines: Lines) -> None:
    more = ("--json",) if is_json else ()
    path = lines({"capability": f"no.{EVIL}"}, {**LOOKUP, "key": EVIL}, {EVIL: 1}, EVIL)
    shown = [
        cli("submit", "--batch", path, *more),
        cli("queues", "pause", "evil", "--reason", EVIL, *more),
        cli("queues", *more),
        cli("queues", "resume", "evil", *more),
        cli("queues", "resume", EVIL, *more),
    ]
    assert [0, 0, 0] == [ended.code for ended in shown[1:4]]
    assert "\\u202e" in shown[0].out
    for ended in shown:
        assert not set(EVIL) & set(ended.out + ended.err) & {"\x1b", "\x07", "\u202e"}
