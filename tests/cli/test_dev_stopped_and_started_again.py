"""`placet dev` keeps what it acknowledged, and keeps its token to its owner."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

from tests.cli.support import COMMAND, DevServer, clean_environment, first_line, run_process
from tests.postgres import lay_out

REFUND = ("call", "payments.refund", '{"order": "A-1001", "amount": "1.00"}', "--key", "kept", "--json")


def test_what_was_called_is_there_after_a_restart(folder: Path) -> None:
    data = folder / ".placet"
    with DevServer(data) as first:
        assert 0o600 == stat.S_IMODE(first.token_file.stat().st_mode)
        called = run_process(*REFUND, cwd=folder).document
        assert 0 == first.stop()
    with DevServer(data):
        again = run_process(*REFUND, cwd=folder).document
        listed = run_process("ls", "--json", cwd=folder).document["actions"]
        looked = run_process("migrate", "--status", "--data", str(data), "--json")
    assert called["action"]["action_id"] == again["action"]["action_id"]
    assert (True, called["action"]["output"]) == (again["attached"], again["action"]["output"])
    assert [called["action"]["action_id"]] == [action["action_id"] for action in listed]
    # The folder belongs to the running server.
    assert (3, True) == (looked.code, "in use" in looked.err)
    migrated = run_process("migrate", "--status", "--data", str(data), "--json")
    assert (0, True) == (migrated.code, migrated.document["up_to_date"])


def test_a_server_whose_postgres_was_killed_ends_and_the_next_one_has_everything(folder: Path) -> None:
    data = folder / ".placet"
    lay_out(data, "embedded")
    with DevServer(data) as first:
        called = run_process(*REFUND, cwd=folder).document
        os.kill(int((data / "pgdata" / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)
        assert 70 == first.ended()
    with DevServer(data):
        again = run_process(*REFUND, cwd=folder).document
    assert (True, called["action"]["output"]) == (again["attached"], again["action"]["output"])


def test_the_ready_line_names_the_target_and_the_next_command(folder: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "dev", "--port", "0"], stdout=subprocess.PIPE, cwd=folder, env=clean_environment()
    )
    try:
        line = first_line(process).decode()
        target = json.loads((folder / ".placet" / "token").read_text(encoding="utf-8"))["target"]
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert f'ready on {target}; try: placet call orders.lookup \'{{"order": "A-1001"}}\'\n' == line
    assert (0, b"") == (process.returncode, rest)


def test_a_taken_port_is_told_in_one_line(folder: Path) -> None:
    for name in ("a", "b"):
        lay_out(folder / name, "embedded")
    with DevServer(folder / "a") as first:
        port = first.ready["target"].rpartition(":")[2]
        ended = run_process("dev", "--port", port, "--health-port", "0", "--data", str(folder / "b"))
    assert (3, 1) == (ended.code, len(ended.err.splitlines()))
    assert port in ended.err


def test_settings_that_cannot_work_are_told_in_one_line(folder: Path) -> None:
    ended = run_process("serve", cwd=folder, PLACET_PORT="no")
    assert (3, "", 1) == (ended.code, ended.out, len(ended.err.splitlines()))
    assert "PLACET_PORT" in ended.err
    assert [] == os.listdir(folder)
