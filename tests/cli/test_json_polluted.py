"""With --json stdout is for programs: one document, or one a line, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from tests.cli.support import (
    COMMAND,
    STOP_SECONDS,
    CommandLine,
    DevServer,
    clean_environment,
    first_line,
)

LOOKUP = ("call", "orders.lookup", '{"order": "A-1001"}')
SCHEMA_KEYS = {"action_id", "capability", "state", "outcome", "input", "output", "idempotency_key", "cursor"}


def test_a_call_answers_with_its_action(cli: CommandLine) -> None:
    ended = cli(*LOOKUP, "--json", "--key", "json-call", "--label", "team=billing")
    action = ended.document["action"]
    assert (0, "") == (ended.code, ended.err)
    assert (False, "SUCCEEDED", "alice@example.com") == (
        ended.document["attached"],
        action["state"],
        action["output"]["customer"],
    )
    assert {"team": "billing"} == action["labels"]
    assert action.keys() >= SCHEMA_KEYS
    assert cli(*LOOKUP, "--json", "--key", "json-call").document["attached"] is True


def test_text_output_of_a_call_is_its_output_alone(cli: CommandLine) -> None:
    ended = cli(*LOOKUP)
    assert "A-1001" == json.loads(ended.out)["order"]
    assert ended.err.startswith("SUCCEEDED")


def test_a_stream_is_one_event_a_line(cli: CommandLine) -> None:
    ended = cli("call", "reports.export", "--stream", "--json")
    kinds = [line["type"].rpartition(".")[2] for line in ended.lines]
    assert ("admitted", "settled", 3) == (kinds[0], kinds[-1], kinds.count("chunk"))
    assert {"orders": 3} == ended.lines[-1]["settled"]["output"]
    action_id = ended.lines[0]["action_id"]
    assert "settled" in cli("watch", action_id, "--json").lines[-1]
    after = ended.lines[0]["cursor"]
    assert "admitted" not in cli("watch", action_id, "--after", after, "--json").lines[0]
    assert "events" in cli("show", action_id, "--events", "--json").document


def test_a_detached_action_goes_on_alone(cli: CommandLine) -> None:
    ended = cli("call", "reports.export", '{"pause_seconds": 0.1}', "--detach", "--json")
    action_id = ended.document["action_id"]
    watched = cli("watch", action_id, "--json")
    assert (0, "SUCCEEDED") == (watched.code, watched.lines[-1]["settled"]["outcome"]["kind"])


def test_watching_ends_with_the_code_of_the_outcome(cli: CommandLine) -> None:
    action_id = cli("call", "reports.export", '{"pause_seconds": 30}', "--detach", "--json").document[
        "action_id"
    ]
    assert 0 == cli("cancel", action_id, "--reason", "enough").code
    watched = cli("watch", action_id, "--json")
    assert (5, "CANCELLED") == (watched.code, watched.lines[-1]["settled"]["outcome"]["kind"])
    assert 5 == cli("watch", action_id, "--after", watched.lines[-1]["cursor"]).code
    assert 0 == cli("show", action_id).code


@pytest.mark.parametrize(
    ("arguments", "member"),
    [
        (("ls", "--limit", "2"), "actions"),
        (("ls", "--state", "succeeded", "--since", "1h", "--label", "a=b"), "actions"),
        (("capabilities",), "capabilities"),
        (("capabilities", "payments.refund"), "input_schema"),
        (("whoami",), "caller"),
        (("servers",), "servers"),
        (("version",), "placet"),
        (("app", "check", "--app", "placet.sample.shop:app"), "problems"),
        (("app", "admit", "--app", "placet.sample.shop:app", "--validate-only"), "problems"),
        (("serve", "--settings"), "settings"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_every_command_prints_one_document(arguments: tuple[str, ...], member: str, cli: CommandLine) -> None:
    ended = cli(*arguments, "--json")
    assert member in ended.document
    assert "" == ended.err


def test_the_feed_is_one_event_a_line_until_somebody_leaves(cli: CommandLine, dev_server: DevServer) -> None:
    mark = f"mark={uuid.uuid4()}"
    called = cli(*LOOKUP, "--label", mark, "--json").document
    command = [*COMMAND, "watch", "--follow", "--label", mark, "--json"]
    environment = clean_environment(PLACET_TOKEN_FILE=str(dev_server.token_file))
    # Unbuffered: two lines that come together are read one by one, and the second is still seen to be there.
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, env=environment) as following:
        lines = [json.loads(first_line(following)) for _ in range(2)]
        following.send_signal(signal.SIGINT)
        assert 130 == following.wait(STOP_SECONDS)
    assert [called["action"]["action_id"]] * 2 == [line["action_id"] for line in lines]
    assert ["placet.action.admitted", "placet.action.settled"] == [line["type"] for line in lines]
    other_filter = cli("watch", "--follow", "--after", lines[0]["cursor"])
    assert (3, True) == (other_filter.code, "MALFORMED_REQUEST" in other_filter.err)
    for arguments in ((), ("--follow", "0199"), ("0199", "--type", "settled")):
        assert 2 == cli("watch", *arguments).code


def test_text_of_the_same_commands_is_no_json_and_no_colour(cli: CommandLine) -> None:
    for arguments in (
        ("ls",),
        ("capabilities",),
        ("capabilities", "payments.refund"),
        ("whoami",),
        ("servers",),
        ("version",),
    ):
        ended = cli(*arguments)
        assert (0, "") == (ended.code, ended.err)
        assert "\x1b" not in ended.out


def test_errors_are_the_document_and_text_on_stderr(cli: CommandLine) -> None:
    ended = cli("call", "orders.lookup", '{"order": 7}', "--json")
    error = ended.document["error"]
    assert ("REFUSED", "INPUT_SCHEMA_VIOLATION", 3) == (error["kind"], error["reason"], error["exit_code"])
    assert ["/order"] == [each["field"] for each in error["violations"]]
    assert "INPUT_SCHEMA_VIOLATION" in ended.err
    assert 2 == cli("ls", "--json", "--limit", "0").document["error"]["exit_code"]


def test_health_of_a_running_server(cli: CommandLine, dev_server: DevServer) -> None:
    ended = cli("health", "--json", "--wait", "10s")
    assert (0, {"live": "SERVING", "ready": "SERVING", "storage": "SERVING"}) == (
        ended.code,
        ended.document["checks"],
    )
    assert dev_server.ready["health_target"] == ended.document["target"]
    assert 11 == cli("health", "--target", "127.0.0.1:1", "--json").code


def test_health_waits_for_a_server_that_has_yet_to_say_where_it_is(
    lone_cli: CommandLine, dev_server: DevServer, tmp_path: Path
) -> None:
    (tmp_path / ".placet").mkdir()
    started = threading.Timer(0.3, lambda: (tmp_path / ".placet/token").symlink_to(dev_server.token_file))
    started.start()
    ended = lone_cli("health", "--json", "--wait", "10s")
    started.join()
    assert (0, dev_server.ready["health_target"]) == (ended.code, ended.document["target"])


def test_an_app_with_problems_has_all_of_them_reported(lone_cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "broken_shop.py").write_text(
        "import placet\n"
        "app = placet.App('shop')\n"
        "@app.tool('a.read', 'read', hazards=['delete'])\n"
        "def read() -> str: return ''\n"
        "@app.tool('a.pay', 'unsafe', hazards=['financial'])\n"
        "def pay() -> str: return ''\n",
        encoding="utf-8",
    )
    ended = lone_cli("app", "check", "--app", "broken_shop:app", "--json")
    sys.modules.pop("broken_shop", None)
    paths = {problem["path"].split("]")[0] for problem in ended.document["problems"]}
    assert (3, False, {"capabilities[0", "capabilities[1"}) == (ended.code, ended.document["ok"], paths)


def test_an_app_that_cannot_be_found_or_imported_is_told(lone_cli: CommandLine, tmp_path: Path) -> None:
    assert 3 == lone_cli("app", "check", "--app", "no_such_module:app").code
    (tmp_path / "failing_shop.py").write_text("raise RuntimeError('at import')\n", encoding="utf-8")
    ended = lone_cli("app", "check", "--app", "failing_shop:app")
    assert (3, True) == (ended.code, "at import" in ended.err)


def test_a_reader_that_has_gone_is_no_traceback(dev_server: DevServer) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = clean_environment(PLACET_TOKEN_FILE=str(dev_server.token_file))
    with os.fdopen(writing, "wb") as gone:
        command = [*COMMAND, "capabilities"]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, env=environment, check=False)
    assert (141, b"") == (done.returncode, done.stderr)
