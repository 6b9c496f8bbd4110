"""The connections of one process: bounded in number and time, well again by themselves after an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import asyncpg

from placet_server.model.errors import StoreUnavailable
from placet_server.store.session import (
    Connection,
    Failure,
    RawConnection,
    SessionOptions,
    classify,
    is_lost,
    open_session,
    translate,
)


class Pool:
    """A pool of configured sessions. Belongs to the event loop that opened it.

    Nothing is asked of Postgres when a connection comes back: whoever changes a session's settings does so
    with ``set local``, takes only tx-level advisory locks, and listens on a connection of its own.
    """

    def __init__(
        self,
        dsn: str,
        *,
        options: SessionOptions | None = None,
        connections_max: int = 10,
        timeout_seconds: float = 2.0,
    ) -> None:
        """``timeout_seconds``: how long one use of a connection may take, waiting for a free one included."""
        self._dsn = dsn
        self._options = options or SessionOptions()
        self._connections_max = connections_max
        self._timeout_seconds = timeout_seconds
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Ready the pool. Connects to nothing yet, so it succeeds while the store is away."""
        self._pool = asyncpg.create_pool(
            connect=self._connect,
            reset=_keep,
            min_size=0,
            max_size=self._connections_max,
            max_inactive_connection_lifetime=300.0,
        )
        await self._pool

    async def close(self) -> None:
        """Close all connections, those in use too, and never wait for the store."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

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

        Raises StoreUnavailable if the store does not answer in that time, or refuses; whether a statement
        of the block took effect is then unknown. Other database errors pass unchanged. A connection that
        failed, or whose block was cancelled in the middle of a statement, is not used again.
        """
        if self._pool is None:
            raise StoreUnavailable(detail="the pool is closed")
        connection: Connection | None = None
        seconds = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            async with asyncio.timeout(seconds), _Lent(self._pool) as connection:
                yield connection
        except Exception as error:
            raise translate(error, connection) from error

    @asynccontextmanager
    async def tx(self, timeout_seconds: float | None = None) -> AsyncIterator[Connection]:
        """Like ``connection``, inside one tx: committed at the end of the block, undone by any exception."""
        async with self.connection(timeout_seconds) as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            except BaseException as error:
                # A connection of unknown state is cut, which undoes the tx; asking it to would wait without
                # end.
                if not _unknown(error, connection):
                    await transaction.rollback()
                raise
            await transaction.commit()

    async def _connect(self, *_: object, **__: object) -> RawConnection:
        return await open_session(self._dsn, self._options)


class _Lent:
    """A connection taken from the pool; given back, or cut if its state is unknown."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool
        self._connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | None = None

    async def __aenter__(self) -> Connection:
        self._connection = await self._pool.acquire()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self._connection
        assert connection is not None
        if error is not None and _unknown(error, connection) and not is_lost(connection):
            connection.terminate()
        await self._pool.release(connection)


def _unknown(error: BaseException, connection: Connection) -> bool:
    """Whether ``error`` may have left a statement half answered."""
    return not isinstance(error, Exception) or classify(error, connection) is Failure.UNAVAILABLE


async def _keep(_: RawConnection) -> None:
    """Replaces the driver's reset query, which costs a round trip for every use."""
