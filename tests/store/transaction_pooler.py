"""A pooler in transaction mode, as small as it gets: a client has a server session only from one tx to its end.

The sessions are opened by the driver, which authenticates, and then speak the raw protocol through copies of their
sockets.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator

import asyncpg

SESSION_COUNT = 12
IDLE = b"I"


class Pooler:
    def __init__(self, sessions: list["Session"], *, rotate: bool, settings: dict[str, str]) -> None:
        self._free = deque(sessions)
        self._rotate = rotate
        self._settings = settings
        self._clients: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._greet(reader, writer)
            while True:
                request = await read_until_answerable(reader)
                session = self._free.popleft()
                # Not lent again if the client leaves in the middle of a tx.
                await self._pass_tx(session, request, reader, writer)
                (self._free.append if self._rotate else self._free.appendleft)(session)
        writer.close()
        self._clients.remove(writer)

    async def close(self) -> None:
        """Cut every client, and wait until each has been let go."""
        async with asyncio.timeout(5):
            while self._clients:
                self._clients[0].transport.abort()
                await self._clients[0].wait_closed()
                await asyncio.sleep(0)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            if body[:4] != struct.pack("!I", 80877103):  # A request for TLS.
                break
            writer.write(b"N")
        writer.write(message(b"R", struct.pack("!I", 0)))
        for name, value in self._settings.items():
            writer.write(message(b"S", f"{name}\0{value}\0".encode()))
        writer.write(message(b"K", struct.pack("!II", 1, 1)) + message(b"Z", IDLE))

    async def _pass_tx(
        self, session: "Session", request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            session.writer.write(request)
            if await session.answer(writer, request) == IDLE:
                return
            request = await read_until_answerable(reader)


class Session:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self, client: asyncio.StreamWriter, request: bytes) -> bytes:
        """Pass the answer on; the tx status when it ends, and b"" for one that is only flushed."""
        while True:
            kind, body = await read_message(self.reader)
            client.write(message(kind, body))
            if kind == b"Z":
                return body
            if request.endswith(message(b"H", b"")) and kind in b"TnE":
                return b""


@contextlib.asynccontextmanager
async def transaction_pooler(
    dsn: str, *, rotate: bool, server_version: str | None = None
) -> AsyncIterator[str]:
    """The DSN of a pooler before ``dsn``. ``rotate``: lend sessions in turn, not the last used first."""
    connections = [await asyncpg.connect(dsn) for _ in range(SESSION_COUNT)]
    settings = {"server_version": connections[0].get_settings().server_version, "client_encoding": "UTF8"}
    if server_version is not None:
        settings["server_version"] = server_version
    sessions = [await take_over(connection) for connection in connections]
    pooler = Pooler(sessions, rotate=rotate, settings=settings)
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    try:
        yield f"postgresql://any:any@127.0.0.1:{server.sockets[0].getsockname()[1]}/any"
    finally:
        server.close()
        await pooler.close()
        for session, connection in zip(sessions, connections, strict=True):
            session.writer.close()
            connection.terminate()


async def take_over(connection: "asyncpg.Connection[asyncpg.Record]") -> Session:
    transport = connection._transport  # type: ignore[attr-defined]
    transport.pause_reading()
    copy = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    return Session(*await asyncio.open_connection(sock=copy))


async def read_until_answerable(reader: asyncio.StreamReader) -> bytes:
    """Everything up to a message that the server answers: Query, Sync or Flush."""
    request = b""
    while True:
        kind, body = await read_message(reader)
        request += message(kind, body)
        if kind in b"QSH":
            return request
        if kind == b"X":
            raise ConnectionResetError


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind = await reader.readexactly(1)
    (length,) = struct.unpack("!I", await reader.readexactly(4))
    return kind, await reader.readexactly(length - 4)


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body
