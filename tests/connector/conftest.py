"""A kernel that dials connectors on this machine, and one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from placet import App
from placet_server.connector.settings import ConnectorSettings
from placet_server.core.kernel import Kernel
from tests.connector.rogue import PATIENT, Rogue, rogue_of
from tests.core.kernels import QUEUE, open_kernel
from tests.postgres import Database


def near_app() -> App:
    app = App("near")

    @app.tool("near.read", "read")
    async def handler(order: str = "1") -> str:
        return "here"

    return app


@pytest.fixture
def settings() -> ConnectorSettings:
    """Tests that wait for something in vain parametrize it."""
    return PATIENT


@pytest.fixture
async def kernel(database: Database, settings: ConnectorSettings) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, near_app(), connectors=settings, queue=QUEUE) as opened:
        yield opened


@pytest.fixture
async def rogue(kernel: Kernel) -> AsyncIterator[Rogue]:
    async with rogue_of(kernel) as started:
        yield started
