"""A connection that ends before its first statement, or says goodbye while idle, is a store that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest

from placet_server.model.errors import StoreUnavailable
from placet_server.store.connection import connect
from placet_server.store.pool import Pool
from tests.postgres import Database

READY_FOR_QUERY = b"Z\x00\x00\x00\x05I"
_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
GOODBYE = b"E" + (len(_FIELDS) + 4).to_bytes(4, "big") + _FIELDS

Ends: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def between(database: Database, meet: Callable[[Ends, Ends], Awaitable[None]]) -> AsyncIterator[str]:
    """The DSN of somebody who stands between client and server."""
    url = urlsplit(database.dsn)
    query = parse_qs(url.query)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "host" in query:
            server = await asyncio.open_unix_connection(query["host"][0] + "/.s.PGSQL.5432")
        else:
            server = await asyncio.open_connection(url.hostname, url.port)
        await meet((reader, writer), server)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    yield f"postgresql://{url.username}:{url.password}@127.0.0.1:{port}{url.path}?sslmode=disable"
    listener.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_ready: bool = False) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
            if to_ready and chunk.endswith(READY_FOR_QUERY):
                break
    writer.close()


@pytest.mark.both_servers
async def test_a_connection_cut_as_soon_as_it_is_ready_is_unavailable(database: Database) -> None:
    async def cut(client: Ends, server: Ends) -> None:
        await asyncio.gather(copy(client[0], server[1]), copy(server[0], client[1], to_ready=True))

    async with between(database, cut) as dsn, Pool(dsn) as pool:
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                await connect(dsn)
            with pytest.raises(StoreUnavailable):
                async with pool.connection() as connection:
                    await connection.fetchval("select 1")


async def test_a_server_that_says_goodbye_to_an_idle_connection_is_unavailable_once(
    database: Database,
) -> None:
    clients: list[asyncio.StreamWriter] = []

    async def pass_on(client: Ends, server: Ends) -> None:
        clients.append(client[1])
        with suppress(asyncio.CancelledError):
            await asyncio.gather(copy(client[0], server[1]), copy(server[0], client[1]))

    async with between(database, pass_on) as dsn, Pool(dsn) as pool:
        async with pool.connection() as connection:
            assert 1 == await connection.fetchval("select 1")
        # The last word of a server that shuts down; it does not always close the connection in the same moment.
        clients[0].write(GOODBYE)
        for _ in range(20):  # The loop's turns that it takes the client to read it.
            await asyncio.sleep(0)
        answers = []
        while 1 not in answers:
            try:
                async with pool.connection() as connection:
                    answers.append(await connection.fetchval("select 1"))
            except StoreUnavailable:
                answers.append(0)
        assert [0, 1] == answers[-2:]
        assert 2 == len(clients)
