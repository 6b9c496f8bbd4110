"""At start a store may be late: it starts itself, fails over, or has more to do than it can answer in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from placet_server.model.errors import StoreUnavailable

PAUSE_SECONDS = 0.25
TELL_SECONDS = 5.0

log = logging.getLogger("placet.store")
Result = TypeVar("Result")


class Patience:
    """One start's, over all its steps."""

    def __init__(self, seconds: float) -> None:
        self._end = monotonic() + seconds
        self._tell_at = 0.0

    async def until_answered(self, step: Callable[[], Awaitable[Result]]) -> Result:
        """`step` again and again, so it must bear repeating. Raises its StoreUnavailable when the time is over."""
        while True:
            try:
                return await step()
            except StoreUnavailable as error:
                left = self._end - monotonic()
                if left <= 0:
                    raise
                self._tell(error, left)
            await asyncio.sleep(min(PAUSE_SECONDS, left))

    def _tell(self, error: StoreUnavailable, left: float) -> None:
        if monotonic() >= self._tell_at:
            self._tell_at = monotonic() + TELL_SECONDS
            log.warning("the store does not answer; tried for another %.0f s: %s", left, error.detail)
