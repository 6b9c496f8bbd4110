"""One child as the parent sees it: started, heard, and started again when it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

BACKOFF_SECONDS = 0.5
BACKOFF_SECONDS_MAX = 30.0
# One that has lived so long is well: the next pause is short again.
WELL_SECONDS = 60.0
# After its link has ended.
END_SECONDS = 10.0
LINE_BYTES_MAX = 64 * 1024

log = logging.getLogger("placet.parent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """`silence_seconds`: one that says nothing for so long does not live. `lock`: the descriptor of the data folder's
    lock, which it holds as long as it lives. `on_ended`: its boot is over for certain."""

    environment: Mapping[str, str]
    silence_seconds: float
    lock: int | None
    on_ended: Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class Child:
    """Belongs to one event loop; its health is read from other threads. `number` is from 1."""

    number: int
    settings: ChildSettings
    restarts: int = 0
    pid: int = 0
    boot_id: str = ""
    metrics_port: int | None = None
    problem: tuple[str, str] = ("", "")
    was_ready: bool = False
    is_up: bool = False
    _statuses: dict[str, bool] = field(default_factory=dict)
    _heard_at: float = 0.0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def is_well(self, service: str) -> bool:
        """It serves, and says so."""
        return self.is_up and self._is_heard() and self._statuses.get(service, False)

    def lives(self) -> bool:
        """Not one that serves and does not answer. One that is about to be started again is not held against it."""
        return not self.is_up or (self._is_heard() and self._statuses.get("live", True))

    async def until_up(self) -> bool:
        """Whether it ever was ready; False once it has ended before."""
        await self._moved.wait()
        return self.was_ready

    async def keep(self) -> None:
        """One life after the other until `stop`, or until it ends before it was ever ready."""
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._live()
            if self._stopping.is_set() or not self.was_ready:
                break
            failures = 0 if time.monotonic() - began >= WELL_SECONDS else failures
            pause = min(BACKOFF_SECONDS * 2**failures, BACKOFF_SECONDS_MAX)
            failures += 1
            told = ": ".join(filter(None, self.problem))
            log.error(
                "process %d (pid %d) has ended with %d%s; started again in %.1f s",
                self.number,
                self.pid,
                code,
                f" ({told})" if told else "",
                pause,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            self.restarts += 1
        self._moved.set()

    def stop(self) -> None:
        """Asks it to drain; again: to hurry. It is not started again."""
        self._stopping.set()
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _live(self) -> int:
        """From start to end; the exit code."""
        ours, theirs = socket.socketpair()
        lock = self.settings.lock
        self.problem = ("", "")
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "placet_server.parent.child_main",
                str(theirs.fileno()),
                str(os.getpid()),
                "-" if lock is None else str(lock),
                env=self.settings.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,
                pass_fds=(theirs.fileno(), *(() if lock is None else (lock,))),
                # What a terminal sends is for the parent, which passes it on.
                start_new_session=True,
            )
        self.pid = process.pid
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        reader, writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
        try:
            await self._hear(reader)
            return await self._ended(process)
        finally:
            writer.close()
            if process.returncode is None:
                self.signal(signal.SIGKILL)
            self.pid, self.is_up, self.metrics_port = 0, False, None
            boot_id, self.boot_id = self.boot_id, ""
            if boot_id:
                await self.settings.on_ended(boot_id)

    async def _ended(self, process: asyncio.subprocess.Process) -> int:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                return await process.wait()
        self.signal(signal.SIGKILL)
        return await process.wait()

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                with suppress(ValueError):
                    self._note(json.loads(line))

    def _note(self, told: dict[str, Any]) -> None:
        self._heard_at = time.monotonic()
        match told:
            case {"health": dict(statuses)}:
                self._statuses = statuses
            case {"ready": {"boot_id": str(boot_id), "metrics_port": port}}:
                self.boot_id, self.metrics_port = boot_id, port
                self.was_ready = self.is_up = True
                self._moved.set()
            case {"refused": str(text)}:
                self.problem = ("refused", text)
            case {"unavailable": str(text)}:
                self.problem = ("unavailable", text)

    def _is_heard(self) -> bool:
        return time.monotonic() - self._heard_at < self.settings.silence_seconds
