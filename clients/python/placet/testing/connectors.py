"""A connector in this process and loop, known to a server under test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from placet.app import App
from placet.testing.address import Address

if TYPE_CHECKING:
    from placet.connector.server import Connector


@asynccontextmanager
async def connector(app: App, server: Address, **settings: Any) -> AsyncIterator[Connector]:
    """Serves the app to this server alone, which has admitted it; `settings` are fields of
    `placet.connector.server.Settings`. Needs `placet[connector]`.
    """
    from placet.aio import AsyncClient
    from placet.connector.server import Settings, serving
    from placet.connector.signing_key import SigningKeys, from_server
    from placet.connector.token import SignedTokens

    keys = SigningKeys(from_server(lambda: AsyncClient.connect(server.target, token=server.token, tls=False)))
    fields: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "tokens": SignedTokens(app.name, keys),
        "drain_seconds": 0.0,
    }
    async with serving(app, Settings(**(fields | settings))) as started:
        await server.client().admit(app, connector=started.target)
        yield started
