"""A Postgres of one test's own, which may be stopped and frozen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from placet.testing.port import free_port
from placet_server.embedded.process_table import processes_of
from tests.faults.processes import ROOT, WAIT_SECONDS
from tests.postgres import PROGRAMS, SMALL, Kind


class Store:
    """A durable Postgres of this test's own, at the same address from start to start."""

    def __init__(self, folder: Path, kind: Kind, **settings: str) -> None:
        self._folder = folder
        self._tcp = {}
        if kind == "installed":
            self._tcp = {"listen_addresses": "127.0.0.1", "port": str(free_port())}
        arguments = {"programs": PROGRAMS[kind], "settings": {**SMALL, **self._tcp, **settings}}
        self._owner = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.postgres_owner", str(folder), json.dumps(arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._socket_dsn = ""

    @property
    def dsn(self) -> str:
        if not self._tcp:
            return self._socket_dsn
        credentials = self._socket_dsn.removeprefix("postgresql://").partition("@")[0]
        return f"postgresql://{credentials}@127.0.0.1:{self._tcp['port']}/postgres?"

    def start(self) -> None:
        self._socket_dsn = self._ask("start")["dsn"]

    def stop(self) -> None:
        self._ask("stop")

    def process_ids(self) -> list[int]:
        return processes_of(self._folder / "pgdata")

    def close(self) -> None:
        assert self._owner.stdin is not None
        self._owner.stdin.close()
        self._owner.wait(WAIT_SECONDS)

    def _ask(self, word: str) -> dict[str, str]:
        assert self._owner.stdin is not None
        assert self._owner.stdout is not None
        self._owner.stdin.write(word.encode() + b"\n")
        self._owner.stdin.flush()
        answer: dict[str, str] = json.loads(self._owner.stdout.readline())
        return answer


@asynccontextmanager
async def frozen(store: Store) -> AsyncIterator[None]:
    process_ids = await asyncio.to_thread(store.process_ids)
    for pid in process_ids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in process_ids:
            os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def stopped(store: Store) -> AsyncIterator[None]:
    await asyncio.to_thread(store.stop)
    yield
    await asyncio.to_thread(store.start)
