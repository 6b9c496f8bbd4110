"""A server for clients that outlive it: as `placet.testing.process`, but forked from what has everything imported."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from placet.testing.address import Address
from placet.testing.port import free_port
from tests.faults.processes import ROOT, Server, Zygote


class Mortal(Address):
    """On one database and port from start to start, and not yet started."""

    def __init__(
        self, zygote: Zygote, folder: Path, dsn: str, app: str, variables: Mapping[str, str]
    ) -> None:
        super().__init__("")
        self._zygote = zygote
        self._folder = folder
        self._server: Server | None = None
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PLACET_")}
        self._environment = kept | {
            "PYTHONPATH": str(ROOT),
            "PLACET_APP": app,
            "PLACET_DSN": dsn,
            "PLACET_PORT": str(free_port()),
            "PLACET_HEALTH_PORT": "0",
            "PLACET_IDENTITY_DEV": "true",
            "PLACET_TOKEN_FILE": str(folder / "token"),
            **variables,
        }

    @property
    def target(self) -> str:
        return self._running().target

    async def start(self, *, kill_at: str = "") -> None:
        """Start, or start again. `kill_at` is a boundary, or "boundary:capability"."""
        environment = dict(self._environment)
        if kill_at:
            environment |= {"PLACET_TEST_BOUNDARIES": "1", "PLACET_KILL_AT": kill_at}
        log, token_file = self._folder / "log", self._folder / "token"
        self._server = await asyncio.to_thread(self._zygote.start, environment, log, token_file)
        await asyncio.to_thread(self._server.until_ready)
        self.token = self._server.token

    async def ended(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        return await asyncio.to_thread(self._running().ended)

    async def close(self) -> None:
        await self.close_clients()
        if self._server is not None:
            await asyncio.to_thread(self._server.kill)

    def _running(self) -> Server:
        assert self._server is not None, "it was not started"
        return self._server
