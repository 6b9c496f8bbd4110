"""The connections of one process: bounded in number and time, well again by themselves after an outage.

Not the driver's own pool: that one spends a task on every release, asks Postgres to reset the session, and waits
without end for a frozen server to confirm a cancellation. Here a connection whose state is not known is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from placet_server.model.errors import StoreUnavailable
from placet_server.store.connection import (
    Connection,
    ConnectionOptions,
    Failure,
    away,
    classify,
    is_away,
    open_connection,
)


class Pool:
    """A pool of configured connections. Belongs to the event loop that uses it.

    Nothing is asked of Postgres when a connection comes back: whoever changes a session's settings does so with ``set
    local``, takes only tx-level advisory locks, and listens on a connection of its own.
    """

    def __init__(
        self,
        dsn: str,
        *,
        options: ConnectionOptions | None = None,
        connections_max: int = 10,
        timeout_seconds: float = 2.0,
    ) -> None:
        """``timeout_seconds``: how long one use of a connection may take, waiting for a free one included."""
        self._dsn = dsn
        self._options = options or ConnectionOptions()
        self._timeout_seconds = timeout_seconds
        self._free_places = asyncio.Semaphore(connections_max)
        # The last one used is used next, so that the rest may stay idle, and is the least likely to be dead.
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._is_open = False

    async def open(self) -> None:
        """Ready the pool. Connects to nothing yet, so it succeeds while the store is away."""
        self._is_open = True

    async def close(self) -> None:
        """Cut all connections, those in use too; never waits for the store."""
        self._is_open = False
        for connection in (*self._idle, *self._lent):
            connection.terminate()
        self._idle.clear()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def connection(self, timeout_seconds: float | None = None) -> AsyncIterator[Connection]:
        """A connection for the block, whose statements must all be done within the time given.

        Raises StoreUnavailable if the store does not answer in that time, or refuses, or somebody else holds its rows;
        whether a statement of the block took effect is then unknown. Other database errors pass unchanged. A connection
        whose state is not known, or whose block was cancelled, is not used again.
        """
        connection: Connection | None = None
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            async with asyncio.timeout(seconds), self._free_places:
                connection = await self._take()
                try:
                    yield connection
                except BaseException as error:
                    if _leaves_unknown(error, connection):
                        connection.terminate()
                    raise
                finally:
                    self._give_back(connection)
        except Exception as error:
            if not is_away(error, connection):
                raise
            raise away(error) from error

    @asynccontextmanager
    async def tx(self, timeout_seconds: float | None = None) -> AsyncIterator[Connection]:
        """Like ``connection``, inside one tx: committed at the end of the block, undone by any exception."""
        async with self.connection(timeout_seconds) as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            except BaseException as error:
                # A connection of unknown state is cut, which undoes the tx; asking it to would wait without end.
                if not _leaves_unknown(error, connection):
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def _take(self) -> Connection:
        if not self._is_open:
            raise StoreUnavailable(detail="the pool is closed")
        connection = None
        while self._idle and connection is None:
            candidate = self._idle.pop()
            connection = None if candidate.is_closed() else candidate
        if connection is None:
            connection = await open_connection(self._dsn, self._options)
        self._lent.add(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        self._lent.discard(connection)
        if connection.is_closed():
            return
        if self._is_open and not connection.is_in_transaction():
            self._idle.append(connection)
        else:  # A tx that its user forgot, or no pool to come back to.
            connection.terminate()


def _leaves_unknown(error: BaseException, connection: Connection) -> bool:
    """Whether ``error`` may have left a statement half answered."""
    return not isinstance(error, Exception) or classify(error, connection) is Failure.UNAVAILABLE
