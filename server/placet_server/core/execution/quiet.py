"""When a composed attempt has nothing to do but wait: every step that it calls waits for people, for steps of its own
or for an effect to be made certain, or has been open for long. Then it need not wait in memory.

Pure: who calls the steps tells it what he sees, and asks it whether to go on waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState


class Quiet:
    """Of one attempt. A step that is called twice at once is the same child: it is one call that waits, until both are
    answered. `parked`: all that waits ends now, and so does whatever is called after that."""

    def __init__(self, park_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.parked = asyncio.Event()
        self._park_seconds = park_seconds
        self._clock = clock
        self._calls: dict[str, int] = {}
        self._seen: dict[str, _Seen] = {}
        self._awaited: tuple[str, ...] = ()

    def enter(self, step: str) -> None:
        """It is called. It does not wait until it was seen to."""
        self._calls[step] = self._calls.get(step, 0) + 1

    def note(self, step: str, child: Action, *, is_asked: bool = False) -> None:
        """As it stands. `is_asked`: somebody is asked what became of its effect."""
        seen = self._seen.get(step)
        if seen is None or seen.child_id != child.action_id:
            seen = self._seen[step] = _Seen(child.action_id, self._clock())
        seen.waits = waits(child, is_asked=is_asked)

    def leave(self, step: str) -> None:
        """It is answered, or given up."""
        self._calls[step] -= 1
        if not self._calls[step]:
            del self._calls[step]
            self._seen.pop(step, None)

    def is_quiet(self) -> tuple[str, ...] | None:
        """The children that all wait; None while the attempt has something to wait for in memory, or nothing at all."""
        if not self._calls or self._seen.keys() != self._calls.keys():
            return None
        long_ago = self._clock() - self._park_seconds
        if not all(seen.waits or seen.since <= long_ago for seen in self._seen.values()):
            return None
        return tuple(sorted(seen.child_id for seen in self._seen.values()))

    def park(self) -> tuple[str, ...] | None:
        """The same, decided once and for good: whoever asks after that is told the same children."""
        if not self.parked.is_set():
            awaited = self.is_quiet()
            if awaited is None:
                return None
            self._awaited = awaited
            self.parked.set()
        return self._awaited


class _Seen:
    __slots__ = ("child_id", "since", "waits")

    def __init__(self, child_id: str, since: float) -> None:
        self.child_id = child_id
        self.since = since
        self.waits = False


def waits(child: Action, *, is_asked: bool) -> bool:
    """Whether nothing of this process can hurry it."""
    if child.state is ActionState.AMBIGUOUS:
        return is_asked
    return child.state is ActionState.WAITING
