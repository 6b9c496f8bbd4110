"""Reads again who is told, when the file has changed."""

from __future__ import annotations

import asyncio
import logging

from placet_server.core.publication.callback import Callbacks
from placet_server.loops.loop import repeat
from placet_server.outbound.target_file import TargetFile, TargetsRefused

POLL_SECONDS = 5.0

_log = logging.getLogger(__name__)


class TargetReader:
    """Every process has one, if there is a file. What is wrong with it is told once, and the old targets stay."""

    def __init__(self, file: TargetFile, callbacks: Callbacks) -> None:
        self._file = file
        self._callbacks = callbacks
        self.is_refused = False

    async def run(self) -> None:
        # The start has just read it.
        await asyncio.sleep(POLL_SECONDS)
        await repeat("target_reader", self.step, POLL_SECONDS)

    async def step(self) -> bool:
        """Always False: there is nothing more to do at once."""
        try:
            targets = await asyncio.to_thread(self._file.read_if_changed)
        except TargetsRefused as refused:
            self.is_refused = True
            _log.error("the targets of callbacks stay as they were: %s", refused)
            return False
        if targets is not None:
            self.is_refused = False
            self._callbacks.replace(targets)
            _log.info("callbacks have %d targets now", len(targets))
        return False
