"""Fixture `placet_server`: `server = await placet_server(app)`, as often as a test likes; see `placet.testing`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest_asyncio

if TYPE_CHECKING:
    from placet.testing import Server

StartServer: TypeAlias = "Callable[..., Awaitable[Server]]"


@pytest_asyncio.fixture
async def placet_server() -> AsyncIterator[StartServer]:
    """Takes apps and fields of the server's configuration; every server is stopped after the test."""
    from placet.testing import server

    async with AsyncExitStack() as servers:

        async def start(*arguments: Any, **config: Any) -> Server:
            return await servers.enter_async_context(server(*arguments, **config))

        yield start
