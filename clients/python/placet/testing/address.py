"""Where a server under test is, and its clients."""

from __future__ import annotations

import json
from pathlib import Path

from placet.aio import AsyncClient
from placet.retry import RetryPolicy


class Address:
    """Where a server is, and clients for it that are closed with it."""

    def __init__(self, token: str) -> None:
        self.token = token
        self._clients: list[AsyncClient] = []

    @property
    def target(self) -> str:
        raise NotImplementedError

    def client(self, policy: RetryPolicy | None = None) -> AsyncClient:
        """A new client, closed when the server is."""
        return self._connected(self.token, policy)

    def _connected(self, token: str, policy: RetryPolicy | None = None) -> AsyncClient:
        made = AsyncClient.connect(self.target, token=token, tls=False, policy=policy)
        self._clients.append(made)
        return made

    async def close_clients(self) -> None:
        for client in self._clients:
            await client.close()


def read_token_file(path: Path) -> tuple[str, str]:
    """Target and token."""
    written = json.loads(path.read_text())
    return written["target"], written["token"]
