"""The one connection of a writer, and the end of those before it.

A statement whose reply is lost may be carried out at any time: its server process waits for a row, or what was sent to
it is still on its way. Until that is over, a look that finds nothing proves nothing, and what is sent again may be
followed by what was sent before. So a connection that was given up with a statement under way counts as lost until its
server process is gone: the next connection ends that one, and waits for it, before anything is written. What it had not
committed by then it never commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from placet_server.model.errors import StoreUnavailable
from placet_server.store.connection import Connection, ServerProcess, end_process, identify

END_SECONDS = 1.0


class WriterConnection:
    """`current`: as it stands; None before the first one, and after one was given up."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self.current: Connection | None = None
        self._connect = connect
        self._process: ServerProcess | None = None
        self._lost: list[ServerProcess] = []

    async def open(self) -> Connection:
        """A new one, once nothing of those before it can take effect any more. Raises StoreUnavailable, and what the
        driver does.
        """
        # Idle, it was closed.
        self.current = None
        connection = await self._connect()
        try:
            process = await identify(connection)
            while self._lost:
                if not await end_process(connection, self._lost[-1], END_SECONDS):
                    raise StoreUnavailable(detail="the server process of a lost connection has not ended")
                self._lost.pop()
        except BaseException:
            connection.terminate()
            raise
        self.current, self._process = connection, process
        return connection

    def give_up(self) -> bool:
        """The answer to its last statement has not come, and will not be heard. False: there was none."""
        if self.current is None:
            return False
        self.current.terminate()
        self.current = None
        if self._process is not None:
            self._lost.append(self._process)
        return True
