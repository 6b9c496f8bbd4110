"""A server stands still, and its packets are lost, while Postgres is telling it what it has claimed: what the tx held
is free again before long, and is run by another one."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from placet_server.store.connection import Connection, connect
from tests.faults.caller import Caller
from tests.faults.processes import POLL_SECONDS, WAIT_SECONDS, Server, Servers, until_so
from tests.faults.store_owner import Store

ACTIONS = 128
INPUT_BYTES = 60_000
# No answer is so long but that of a large claim.
REPLY_BYTES_MAX = 500_000
RESCUE_SECONDS_MAX = 15.0
PAUSE = "insert into queue_pauses values ('default', '-', now(), 'a test', '')"
HELD = """
select count(*) from pg_stat_activity
where application_name = 'placet queue' and state = 'active' and wait_event = 'ClientWrite'
"""


class Line:
    """Passes on what both ends say until an answer is too long; from then on nothing at all, and it hears nothing."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self.port = 0
        self.is_cut = asyncio.Event()
        self._answered = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = socket.socket()
        # What Postgres has sent and nobody has read must not all fit.
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        upstream.setblocking(False)
        await asyncio.get_running_loop().sock_connect(upstream, self._address)
        far_reader, far_writer = await asyncio.open_connection(sock=upstream)
        try:
            await asyncio.gather(self._ask(reader, far_writer), self._answer(far_reader, writer))
        finally:
            for each in (writer, far_writer):
                each.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._passable()
            self._answered = 0
            writer.write(data)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            self._answered += len(data)
            if self._answered > REPLY_BYTES_MAX:
                self.is_cut.set()
            await self._passable()
            writer.write(data)
        writer.close()

    async def _passable(self) -> None:
        if self.is_cut.is_set():
            await asyncio.Event().wait()


@asynccontextmanager
async def line_to(store: Store) -> AsyncIterator[tuple[Line, str]]:
    """And the address of the store by way of it."""
    address = urlsplit(store.dsn)
    assert address.hostname is not None
    assert address.port is not None
    line = Line(address.hostname, address.port)
    served: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            await line.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line, store.dsn.replace(f":{address.port}/", f":{line.port}/")
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


@asynccontextmanager
async def session(store: Store) -> AsyncIterator[Connection]:
    connection = await connect(store.dsn)
    yield connection
    await connection.close()


@pytest.mark.parametrize("postgres_kind", ["installed"], indirect=True, scope="session")
async def test_what_a_frozen_server_holds_in_a_tx_is_run_by_another_within_fifteen_seconds(
    store: Store, servers: Servers, call: Callable[[Server], Caller]
) -> None:
    storing = call(servers.start(dsn=store.dsn, queue_slots=0))
    async with line_to(store) as (line, dsn), session(store) as connection:
        claiming = await asyncio.to_thread(servers.start, dsn=dsn, queue_slots=ACTIONS)
        told = {"tenant": "", "subject": "x" * INPUT_BYTES}
        await connection.execute(PAUSE)
        stored = [storing.submit("till.whose", told, f"k{number}") for number in range(ACTIONS)]
        assert {"SUCCEEDED"} == {answer.word for answer in await asyncio.gather(*stored)}
        # All at once.
        await connection.execute("delete from queue_pauses")
        async with asyncio.timeout(WAIT_SECONDS):
            await line.is_cut.wait()
        claiming.signal(signal.SIGSTOP)
        cut = time.monotonic()
        # Postgres is in the middle of its answer, with the rows of all that is claimed in its hands.
        await until_so(lambda: connection.fetchval(HELD))
        assert 0 == await connection.fetchval("select count(*) from actions where state <> 'QUEUED'")
        await asyncio.to_thread(servers.start, dsn=store.dsn)
        while await connection.fetchval("select count(*) from actions where state <> 'SUCCEEDED'"):
            assert time.monotonic() - cut < RESCUE_SECONDS_MAX
            await asyncio.sleep(POLL_SECONDS)
        # What was undone never began.
        assert 1 == await connection.fetchval("select max(attempt) from actions")
