"""One server for all attacks of a test process: what one of them breaks, the next ones meet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests import postgres
from tests.hostile.served import Client, Served, served


@pytest.fixture(scope="session")
def server(
    postgres_kind: postgres.Kind,
    _clusters: dict[postgres.Kind, postgres.Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    with (
        _clusters[postgres_kind].database() as database,
        served(database.dsn, tmp_path_factory.mktemp("hostile")) as running,
    ):
        yield running


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Client]:
    """Alice of acme."""
    async with server.client() as made:
        yield made


@pytest.fixture
async def stranger(server: Served) -> AsyncIterator[Client]:
    """Bob of another tenant."""
    async with server.client("globex", "bob") as made:
        yield made
