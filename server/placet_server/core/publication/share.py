"""Reads that many ask for at the same moment, made once: a thousand watchers of one action look where one would.

Whoever asks first reads for all who ask until it begins; who comes later is of the next round, which begins after it.
So what anybody gets was read after it asked, and news that it heard of before are in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

Found = TypeVar("Found")

QUIET_MAX = 4096


class SharedReads:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._open: dict[Hashable, asyncio.Future[Any]] = {}
        self._running: dict[Hashable, asyncio.Future[Any]] = {}
        self._quiet: dict[Hashable, float] = {}

    async def read(self, key: Hashable, ask: Callable[[], Awaitable[Found]]) -> Found:
        """What `ask` finds, asked by somebody. Not to be changed, as others have it, too. Raises what it raised."""
        while True:
            waiting = self._open.get(key)
            if waiting is None:
                return await self._lead(key, ask)
            await asyncio.wait((waiting,))
            if not waiting.cancelled():
                found: Found = waiting.result()
                return found

    def note_quiet(self, key: Hashable, began: float) -> None:
        """Nothing was there at that time, by the monotonic clock."""
        if len(self._quiet) >= QUIET_MAX:
            self._quiet.clear()
        self._quiet[key] = began

    def was_quiet(self, key: Hashable, seconds: float) -> bool:
        """Somebody looked so lately and found nothing: enough for who has heard of no news."""
        return time.monotonic() - self._quiet.get(key, float("-inf")) < seconds

    async def _lead(self, key: Hashable, ask: Callable[[], Awaitable[Found]]) -> Found:
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._open[key] = answer
        try:
            before = self._running.get(key)
            if before is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait((before,))
            del self._open[key]
            self._running[key] = answer
            found = await ask()
            answer.set_result(found)
            return found
        except asyncio.CancelledError:
            raise
        except Exception as error:
            answer.set_exception(error)
            # Others may not be there to take it.
            answer.exception()
            raise
        finally:
            # Of one who left before: another one asks.
            answer.cancel()
            for rounds in (self._open, self._running):
                if rounds.get(key) is answer:
                    del rounds[key]
