"""A server in this process and loop."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placet.app import App
from placet.testing.address import Address, read_token_file
from placet.testing.scratch import database

if TYPE_CHECKING:
    from placet_server.app import PlacetServer


class MovedClock:
    """The server's time: the database's until it is moved, from then on this machine's, and so much later."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime | None:
        return datetime.now(UTC) + self._ahead if self._ahead else None

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self._ahead += timedelta(seconds=seconds)


class Server(Address):
    """In this process. `placet` is the server itself, `clock` its clock."""

    def __init__(self, placet: PlacetServer, clock: MovedClock, token: str) -> None:
        super().__init__(token)
        self.placet = placet
        self.clock = clock

    @property
    def target(self) -> str:
        return self.placet.target


@asynccontextmanager
async def server(*apps: App, **config: Any) -> AsyncIterator[Server]:
    """A server of these apps in this process and loop; `config` are fields of `placet_server.config.Config`."""
    from placet_server.app import PlacetServer
    from placet_server.config import load_config

    clock = MovedClock()
    async with database() as dsn:
        with tempfile.TemporaryDirectory(prefix="placet-testing-") as folder:
            token_file = Path(folder, "token")
            fields = {"port": 0, "health_port": 0, "identity_dev": True, "token_file": token_file, **config}
            placet = PlacetServer(load_config(dsn=dsn, **fields), apps=apps, clock=clock)
            await placet.start()
            running = Server(placet, clock, read_token_file(Path(fields["token_file"]))[1])
            try:
                yield running
            finally:
                await running.close_clients()
                await placet.stop(0)
