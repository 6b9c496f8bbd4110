"""Says the action id early, in initial metadata, when the work takes longer than 20 ms.

Only work counts: an answer that is merely waiting its turn to be written comes at once, and under load all of them
wait, while each announcement costs a quarter of what a whole call does.

No timer per call: one queue in order of time, looked at by one task while it has anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

import grpc

from placet_server.rpc.call import CallerGone, Rpc
from placet_server.rpc.status import ACTION_ID_TRAILER

DELAY_SECONDS = 0.02


class Announcer:
    """Unary calls whose answer is awaited. `run` must be running for anything to be sent."""

    def __init__(
        self,
        delay_seconds: float = DELAY_SECONDS,
        is_settling: Callable[[str], bool] = lambda action_id: False,
    ) -> None:
        """`is_settling` says of an action that its handler has ended."""
        self._delay_seconds = delay_seconds
        self._is_settling = is_settling
        self._waiting: deque[tuple[float, Rpc[Any]]] = deque()
        self._arrived = asyncio.Event()

    def admitted(self, rpc: Rpc[Any], action_id: str) -> None:
        """The call has an action now; it is announced unless the call ends first."""
        rpc.action_id = action_id
        self._waiting.append((monotonic() + self._delay_seconds, rpc))
        if len(self._waiting) == 1:
            self._arrived.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as sending:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while self._waiting:
                    due, rpc = self._waiting[0]
                    if not rpc.finished and (left := due - monotonic()) > 0:
                        await asyncio.sleep(left)
                    self._waiting.popleft()
                    if not rpc.finished and not self._is_settling(rpc.action_id):
                        rpc.announcement = sending.create_task(_announce(rpc))


async def _announce(rpc: Rpc[Any]) -> None:
    try:
        await rpc.context.send_initial_metadata(((ACTION_ID_TRAILER, rpc.action_id),))
    except (grpc.aio.BaseError, asyncio.InvalidStateError):
        # The call ended meanwhile; its own status says the same.
        return


async def announce_stream(rpc: Rpc[Any], action_id: str) -> None:
    """The first message of a stream is preceded by the id. Raises CallerGone."""
    rpc.action_id = action_id
    try:
        await rpc.context.send_initial_metadata(((ACTION_ID_TRAILER, action_id),))
    except grpc.aio.InternalError as error:
        raise CallerGone from error
