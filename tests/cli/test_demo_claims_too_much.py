"""The demo says only what was counted, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from placet_server.cli.demo.claim import Claims
from tests.cli.support import COMMAND, clean_environment, first_line, run_process

DEMO_SECONDS = 110.0
GONE_SECONDS = 30.0


def test_a_claim_that_does_not_hold_is_broken() -> None:
    claims = Claims()
    verdicts = [claims.all_held]
    claims.add("one", seen="1 refund", wanted="1 refund")
    verdicts.append(claims.all_held)
    claims.add("two", seen="2 refunds", wanted="1 refund")
    verdicts.append(claims.all_held)
    assert [False, True, False] == verdicts
    assert "2 refunds (wanted: 1 refund)" == claims.made[1].seen


def test_every_claim_holds_and_nothing_is_left_behind(folder: Path) -> None:
    ended = run_process("demo", "--json", timeout=DEMO_SECONDS, cwd=folder, TMPDIR=str(folder))
    assert 0 == ended.code, ended.err
    claims = ended.document["claims"]
    assert [] == [claim for claim in claims if not claim["held"]]
    texts = " ".join(claim["claim"] for claim in claims)
    assert all(word in texts for word in ("READ", "IDEMPOTENT", "RECONCILABLE", "UNSAFE"))
    assert "a queued export survives the crash" in texts
    assert "who asks cannot say yes" in texts
    assert "what people said yes to survives the crash" in texts
    assert "an agent's run survives the crash" in texts
    assert {"refunds": 3, "charges": 1, "reimbursements": 1, "messages": 1} == ended.document["provider"]
    assert [] == os.listdir(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_demo_leaves_nothing_behind(number: signal.Signals, folder: Path) -> None:
    environment = clean_environment(TMPDIR=str(folder), PYTHONUNBUFFERED="1")
    process = subprocess.Popen(
        [*COMMAND, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=folder
    )
    first_line(process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (130, "interrupted\n") == (process.returncode, said.decode())
    assert [] == os.listdir(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_demo_leaves_no_process_behind(folder: Path) -> None:
    environment = clean_environment(TMPDIR=str(folder), PYTHONUNBUFFERED="1")
    process = subprocess.Popen([*COMMAND, "demo"], stdout=subprocess.PIPE, env=environment, cwd=folder)
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if b"ready on" in line:
                break
        # Server, provider, and at least one of Postgres.
        assert len(_processes_in(folder)) >= 3
        process.kill()
        process.wait()
        end = time.monotonic() + GONE_SECONDS
        while _processes_in(folder) and time.monotonic() < end:
            time.sleep(0.1)
    assert [] == _processes_in(folder)


def _processes_in(folder: Path) -> list[int]:
    """Those that were started with this folder as TMPDIR."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
