"""What several store tests need: folders any user can enter, waiting for a condition, an owner to kill."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from placet_server.embedded.server import EmbeddedPostgres

WAIT_SECONDS = 15.0

OWNER = """
import json, os, sys, threading, time
from placet_server.embedded.server import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1] or None)
if sys.argv[2] == "thread":
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
else:
    server.start()
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(60)
report = {"dsn": server.dsn, "folder": str(server.folder), "pid": server.pid, "ids": server.process_ids}
print(json.dumps(report), flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Another process that runs an embedded Postgres."""

    process: "subprocess.Popen[str]"
    dsn: str
    folder: Path
    server_pid: int
    server_ids: list[int]


def start_owner(folder: Path | None, how: str = "plain") -> Owner:
    """``how``: plain; ``thread``, started in a thread that has ended; ``fork``, with a forked child that lives on."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder or ""), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert process.stdout is not None
    report = json.loads(process.stdout.readline())
    return Owner(
        process=process,
        dsn=report["dsn"],
        folder=Path(report["folder"]),
        server_pid=report["pid"],
        server_ids=report["ids"],
    )


def runs(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Poll until true; fails the test when time is up."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


async def wait_until_async(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """The same, leaving the loop to others meanwhile."""
    await asyncio.to_thread(wait_until, condition, seconds)


@contextmanager
def frozen(server: EmbeddedPostgres) -> Iterator[None]:
    """Every process of a server stopped in its tracks, as on a machine that swaps or a disk that hangs."""
    process_ids = server.process_ids
    for pid in process_ids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in process_ids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
