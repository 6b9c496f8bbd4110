"""Deadlines by the thousand: a timer of its own for each call would cost more than most calls' other bookkeeping.

Deadlines far away share a tick of the wheel and may fire up to one tick early, never late; near ones get an
exact timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

TICK_SECONDS = 0.05
EXACT_BELOW_SECONDS = 1.0


class Timer:
    """One pending call. `cancel` is cheap and may be called at any time, also after it fired."""

    __slots__ = ("_arguments", "_callback", "_exact", "_tick")

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], tick: dict[Timer, None] | None
    ) -> None:
        self._callback = callback
        self._arguments = arguments
        self._tick = tick
        self._exact: asyncio.TimerHandle | None = None
        if tick is not None:
            tick[self] = None

    def start_exactly(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._exact = loop.call_later(seconds, self.fire)

    def cancel(self) -> None:
        if self._tick is not None:
            self._tick.pop(self, None)
        elif self._exact is not None:
            self._exact.cancel()

    def fire(self) -> None:
        self._callback(*self._arguments)


class TimerWheel:
    """Belongs to one event loop. Sleeps while nothing is pending."""

    def __init__(self) -> None:
        self._ticks: dict[int, dict[Timer, None]] = {}
        self._next: asyncio.TimerHandle | None = None

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        loop = asyncio.get_running_loop()
        if seconds < EXACT_BELOW_SECONDS:
            timer = Timer(callback, arguments, None)
            timer.start_exactly(loop, seconds)
            return timer
        number = int((loop.time() + seconds) / TICK_SECONDS)
        tick = self._ticks.get(number)
        if tick is None:
            tick = self._ticks[number] = {}
            if self._next is None:
                self._arm(loop)
        return Timer(callback, arguments, tick)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next = loop.call_at((int(loop.time() / TICK_SECONDS) + 1) * TICK_SECONDS, self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now = int(loop.time() / TICK_SECONDS + 0.1)
        for number in [number for number in self._ticks if number <= now]:
            due = self._ticks.pop(number)
            while due:
                due.popitem()[0].fire()
        self._next = None
        if self._ticks:
            self._arm(loop)
