"""Sends what others are to be told of."""

from __future__ import annotations

import logging
import time

from placet_server.core.kernel import Kernel
from placet_server.core.publication.callback import BURIED_MAX
from placet_server.core.publication.deliver import Deliverer
from placet_server.loops.loop import repeat

POLL_SECONDS = 1.0
BURY_SECONDS = 600.0
COUNT_SECONDS = 15.0

_log = logging.getLogger(__name__)


class CallbackSender:
    """Every process with callback slots has one; what one takes the others pass over."""

    def __init__(self, kernel: Kernel, deliverer: Deliverer) -> None:
        self._kernel = kernel
        self._deliverer = deliverer
        self._bury_at = time.monotonic() + BURY_SECONDS
        self._count_at = 0.0

    async def run(self) -> None:
        await repeat("callback_sender", self.step, POLL_SECONDS, self._kernel.journal.callbacks.wait)

    async def step(self) -> bool:
        """True if there may be more at once."""
        if self._kernel.is_draining:
            return False
        if time.monotonic() >= self._bury_at:
            buried = await self._deliverer.bury_without_target()
            if buried:
                _log.warning("%d deliveries are dead: their targets are in no file any more", buried)
            if buried < BURIED_MAX:
                self._bury_at = time.monotonic() + BURY_SECONDS
        if time.monotonic() >= self._count_at:
            await self._deliverer.count()
            self._count_at = time.monotonic() + COUNT_SECONDS
        return await self._deliverer.run_once()
