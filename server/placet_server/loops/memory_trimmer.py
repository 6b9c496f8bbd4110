"""Gives memory that is free back to the system. The allocator keeps what many runs at once have had, in pieces between
what is still used: so a server would seem to hold what thousands of parked runs have long given up.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path

from placet_server.loops.loop import repeat

TRIM_SECONDS = 20.0
# A walk through all of it takes some milliseconds: only when there may be something to give.
GROWN_BYTES_MIN = 8 * 2**20

Trim = Callable[[int], object]


def malloc_trim() -> Trim | None:
    """Of the C library; None: it has none."""
    try:
        found: Trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found


def resident_bytes() -> int:
    """Of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):
        return 0


class MemoryTrimmer:
    """Of one process. `resident`: how much it has, in bytes."""

    def __init__(self, trim: Trim, resident: Callable[[], int]) -> None:
        self._trim = trim
        self._resident = resident
        self._least = resident()

    async def run(self) -> None:
        await repeat("memory_trimmer", self.step, TRIM_SECONDS)

    async def step(self) -> bool:
        if self._resident() - self._least >= GROWN_BYTES_MIN:
            # In a thread, as the call lets go of the interpreter.
            await asyncio.to_thread(self._trim, 0)
            self._least = self._resident()
        return False
