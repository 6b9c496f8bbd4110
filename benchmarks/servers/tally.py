"""How much a worker has done so far: a line of seconds and count, five times a second, on standard output."""

from __future__ import annotations

import asyncio
import time

TELL_SECONDS = 0.2


class Tally:
    def __init__(self, wanted: int) -> None:
        self.done = 0
        self._wanted = wanted

    async def tell(self) -> None:
        """Until all that is wanted is done."""
        while True:
            done = self.done
            print(f"{time.monotonic():.6f} {done}", flush=True)
            if done >= self._wanted:
                return
            await asyncio.sleep(TELL_SECONDS)
