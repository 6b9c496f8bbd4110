"""The connection by which processes wake each other: it listens, and sends what others are to hear.

Never a transaction of anybody's work: NOTIFY takes one lock for the whole database until its commit, and what is sent
must be in the store before anybody hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from placet_server.store import queries
from placet_server.store.connection import Connection, away, is_away

Result = TypeVar("Result")

CHANNEL = "placet"
# Postgres takes less than 8,000.
PAYLOAD_BYTES_MAX = 7_500
ANSWER_SECONDS = 2.0

_SQL = queries.load("notify")
RELAX, SEND, HAS_OTHERS = _SQL["relax"], _SQL["send"], _SQL["has_others"]


class NoticeChannel:
    """Open until `close`, or until it is lost. Belongs to one event loop; one call at a time.

    Every method raises StoreUnavailable when it is lost."""

    def __init__(
        self, connection: Connection, heard: Callable[[str], None], lost: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._own_pid = connection.get_server_pid()
        self._heard = heard
        self._lost = lost

    @classmethod
    async def open(
        cls,
        connect: Callable[[], Awaitable[Connection]],
        heard: Callable[[str], None],
        lost: Callable[[], None],
    ) -> NoticeChannel:
        """`heard` is called with what others send, `lost` when the connection ends."""
        channel = cls(await connect(), heard, lost)
        try:
            await channel._listen()
        except BaseException:
            channel.close()
            raise
        return channel

    async def send(self, payloads: Sequence[str]) -> None:
        """Each at most PAYLOAD_BYTES_MAX. Returns once they are on their way."""
        await self._ask(self._connection.fetch(SEND.sql, *SEND.arguments(payloads=list(payloads))))

    async def has_others(self, boot_id: str) -> bool:
        arguments = HAS_OTHERS.arguments(boot_id=boot_id)
        found: bool = await self._ask(self._connection.fetchval(HAS_OTHERS.sql, *arguments))
        return found

    def close(self) -> None:
        """At once."""
        self._connection.remove_termination_listener(self._terminated)
        self._connection.terminate()

    async def _listen(self) -> None:
        self._connection.add_termination_listener(self._terminated)
        await self._ask(self._connection.fetchval(RELAX.sql))
        await self._ask(self._connection.add_listener(CHANNEL, self._notified))

    async def _ask(self, statement: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await statement
        except Exception as error:
            if not is_away(error, self._connection):
                raise
            raise away(error) from error

    def _notified(self, _connection: object, pid: int, _channel: str, payload: object) -> None:
        if pid != self._own_pid:
            self._heard(str(payload))

    def _terminated(self, _connection: object) -> None:
        self._lost()
