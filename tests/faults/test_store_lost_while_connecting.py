"""A connection that is cut between its opening and its first statement is a store that is away, not a fault of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import pytest

from placet_server.model.errors import StoreUnavailable
from placet_server.store.pool import Pool
from placet_server.store.session import connect
from tests.postgres import Database

READY_FOR_QUERY = b"Z\x00\x00\x00\x05I"


@pytest.fixture
async def cut_dsn(database: Database) -> AsyncIterator[str]:
    """Where every connection ends as soon as it is ready."""
    url = urlsplit(database.dsn)
    query = parse_qs(url.query)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
                if chunk.endswith(READY_FOR_QUERY):
                    break
        writer.close()

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "host" in query:
            up, down = await asyncio.open_unix_connection(query["host"][0] + "/.s.PGSQL.5432")
        else:
            up, down = await asyncio.open_connection(url.hostname, url.port)
        await asyncio.gather(copy(reader, down), copy(up, writer))

    listener = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    yield f"postgresql://{url.username}:{url.password}@127.0.0.1:{port}{url.path}?sslmode=disable"
    listener.close()


@pytest.mark.both_servers
async def test_it_is_unavailable_however_the_race_ends(cut_dsn: str) -> None:
    async with Pool(cut_dsn) as pool:
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                await connect(cut_dsn)
            with pytest.raises(StoreUnavailable):
                async with pool.connection() as connection:
                    await connection.fetchval("select 1")
