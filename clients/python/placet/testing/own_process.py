"""A server in a process of its own, to be killed, frozen and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from placet.testing.address import Address, read_token_file
from placet.testing.port import free_port
from placet.testing.scratch import database

READY_SECONDS = 30.0

PROGRAM = (
    "import sys; from placet_server.app import run; from placet_server.config import load_config; "
    "sys.exit(run(load_config()))"
)


class Process(Address):
    """In a process of its own, on one database and port from start to start."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        super().__init__("")
        self._folder = folder
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._target = ""

    @property
    def target(self) -> str:
        return self._target

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._running().pid

    async def start(self, *, kill_at: str = "") -> None:
        """Start, or start again. `kill_at` is a boundary, or "boundary:capability": reaching it, the process kills
        itself.

        Those of a call: before_intent_persistence, intent_persisted, claimed, before_provider_call,
        provider_response_received, result_persisted; of an agent's run: run_opened, turn_requested, turn_sent,
        turn_received, turn_answered, turn_failed, calls_admitted, call_told, run_compacted, parked, session_freed.
        """
        token_file = self._folder / "token"
        before = _stamp(token_file)
        environment = self._environment | {"PLACET_TOKEN_FILE": str(token_file)}
        if kill_at:
            environment |= {"PLACET_TEST_BOUNDARIES": "1", "PLACET_KILL_AT": kill_at}
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                PROGRAM,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        await self._read_token(token_file, before)

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    async def kill(self) -> None:
        """As `kill -9`."""
        if self._running().returncode is None:
            self._running().kill()
        await self.ended()

    async def stop(self) -> int:
        """As a supervisor does, by SIGTERM. The exit code."""
        if self._running().returncode is None:
            self._running().terminate()
        return await self.ended()

    async def ended(self) -> int:
        """Wait until the process has ended; its exit code, negative for a signal."""
        return await asyncio.wait_for(self._running().wait(), READY_SECONDS)

    def freeze(self) -> None:
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._running().returncode is None:
            self._running().send_signal(signal.SIGCONT)

    async def _read_token(self, path: Path, before: tuple[int, int]) -> None:
        """The server writes it anew once it listens; the token stays the same from start to start."""
        async with asyncio.timeout(READY_SECONDS):
            while _stamp(path) == before:
                if self._running().returncode is not None:
                    raise RuntimeError(f"the server ended before it was ready:\n{self.log()}")
                await asyncio.sleep(0.02)
        self._target, self.token = read_token_file(path)

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process


@asynccontextmanager
async def process(*apps: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[Process]:
    """A server in a process of its own, not yet started: `await process.start(kill_at=…)`.

    `apps` are references such as "shop:app"; `environment` adds PLACET_… variables, and whatever the apps read.
    """
    async with database() as dsn:
        with tempfile.TemporaryDirectory(prefix="placet-testing-") as folder:
            variables = os.environ | {
                "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path),
                "PLACET_APP": ",".join(apps),
                "PLACET_DSN": dsn,
                "PLACET_PORT": str(free_port()),
                "PLACET_HEALTH_PORT": "0",
                "PLACET_IDENTITY_DEV": "true",
            }
            running = Process(Path(folder), variables | dict(environment or {}))
            try:
                yield running
            finally:
                await running.close_clients()
                if running.started:
                    running.thaw()
                    await running.kill()


def _stamp(path: Path) -> tuple[int, int]:
    """Differs after every replacement."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)
