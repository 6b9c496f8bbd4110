"""Where a server under test is, and its clients."""

from __future__ import annotations

import json
from pathlib import Path

from placet.aio import AsyncClient
from placet.client import Client
from placet.retry import RetryPolicy


class Address:
    """Where a server is, and clients for it that are closed with it."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._async_clients: list[AsyncClient] = []
        self._clients: list[Client] = []

    @property
    def target(self) -> str:
        raise NotImplementedError

    def client(self, policy: RetryPolicy | None = None) -> AsyncClient:
        """A new client, closed when the server is."""
        made = AsyncClient.connect(self.target, token=self.token, tls=False, policy=policy)
        self._async_clients.append(made)
        return made

    def blocking_client(self, policy: RetryPolicy | None = None) -> Client:
        """A new client for use in threads (`asyncio.to_thread`): in the server's own loop it would wait for itself."""
        made = Client.connect(self.target, token=self.token, tls=False, policy=policy)
        self._clients.append(made)
        return made

    async def close_clients(self) -> None:
        for client in self._async_clients:
            await client.close()
        for blocking in self._clients:
            blocking.close()


def read_token_file(path: Path) -> tuple[str, str]:
    """Target and token."""
    written = json.loads(path.read_text())
    return written["target"], written["token"]
