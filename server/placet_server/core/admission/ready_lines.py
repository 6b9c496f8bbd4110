"""Which lines have work, as far as this process knows: by a look, and by what the doorbell names.

A line whose handler is not here is passed over, as if it were not there. One that is full is so until the next look, or
until one of its attempts ends here.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from placet.app import Tool
from placet_server.core.execution.handlers import HandlerTable
from placet_server.model.action import PRIORITY_DEFAULT
from placet_server.model.line import Line, ReadyLine
from placet_server.store import queue
from placet_server.store.pool import Pool

PAGES_MAX = 8
UNROUTABLE_SECONDS = 5.0
UNROUTABLE_MAX = 4096
# What is full is passed over so long, at least: other lines are looked at meanwhile.
FULL_SECONDS_MIN = 0.02


class ReadyLines:
    """`known`: by their names, as many as `lines_max` or a few more. `room_max`: of what takes as much as there is."""

    def __init__(
        self, handlers: HandlerTable, pool: Pool, *, lines_max: int, poll_seconds: float, room_max: int
    ) -> None:
        self.known: dict[Line, ReadyLine] = {}
        self._handlers = handlers
        self._pool = pool
        self._lines_max = lines_max
        self._poll_seconds = poll_seconds
        self._room_max = room_max
        self._after: Line | None = None
        self._look_at = 0.0
        self._unroutable: dict[tuple[str, str, str], float] = {}
        self._full: dict[Line, float] = {}

    def note(self, rung: Collection[Line]) -> None:
        """They are said to have work."""
        now = time.time_ns() // 1000
        for line in rung:
            if line not in self.known and len(self.known) < 2 * self._lines_max and self._is_here(line):
                self.known[line] = ReadyLine(line, PRIORITY_DEFAULT, now)

    def look_soon(self) -> None:
        """There may be work that nobody has named."""
        self._look_at = 0.0

    def look_seconds(self) -> float:
        """Until lines are looked for again, whether the doorbell rings or not."""
        return max(0.0, self._look_at - time.monotonic())

    async def look(self) -> None:
        """The next lines with work: all of them, where they are not more than may be known at a time. Raises
        StoreUnavailable.
        """
        found: list[ReadyLine] = []
        async with self._pool.connection() as connection:
            for _ in range(PAGES_MAX):
                page = await queue.list_lines(connection, after=self._after, count_max=self._lines_max)
                found += (ready for ready in page if self._is_here(ready.line))
                self._after = page[-1].line if len(page) == self._lines_max else None
                if self._after is None or len(found) >= self._lines_max:
                    break
        self.known = {ready.line: ready for ready in found}
        self._look_at = time.monotonic() + self._poll_seconds

    def look_if_none(self) -> None:
        """After the last of those that are known comes the next page of them."""
        if not self.known and self._after is not None:
            self.look_soon()

    def pass_over_unroutable(self, line: Line) -> None:
        """No catalogue that this process sees knows it."""
        if len(self._unroutable) >= UNROUTABLE_MAX:
            self._unroutable.clear()
        self._unroutable[line.tenant, line.capability, line.version] = time.monotonic() + UNROUTABLE_SECONDS

    def pass_over_full(self, line: Line) -> None:
        """Of it as many run, here and elsewhere, as its contract allows."""
        self.known.pop(line, None)
        self._full[line] = time.monotonic() + max(FULL_SECONDS_MIN, self._poll_seconds)

    def take_up_freed(self, capability: str, tenant: str) -> bool:
        """What was full of it may have room. False: nothing was."""
        full = [line for line in self._full if (line.capability, line.tenant) == (capability, tenant)]
        for line in full:
            del self._full[line]
        if full:
            self.look_soon()
        return bool(full)

    def tool(self, line: Line) -> Tool | None:
        """What serves it here. None: nothing, unless it is a program's."""
        return self._handlers.find(line.capability, line.version, line.tenant)

    def room(self, line: Line) -> int:
        """What a connector can begin now: who waits in a queue must not be claimed to be turned away."""
        if self.tool(line) is None:
            return self._room_max
        room = self._handlers.room(line.capability, line.version, line.tenant)
        return self._room_max if room is None else room

    def _is_here(self, line: Line) -> bool:
        # A line is a name: whether it is a program's is known once its capability is.
        if self.tool(line) is None and not self._handlers.programs.are_here:
            return False
        if self.room(line) <= 0:
            return False
        full_until = self._full.get(line)
        if full_until is not None:
            if full_until > time.monotonic():
                return False
            del self._full[line]
        until = self._unroutable.get((line.tenant, line.capability, line.version))
        return until is None or until <= time.monotonic()
