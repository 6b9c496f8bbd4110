"""When the same request is sent again, and how long is left. Pure: clock and chance are handed in.

Sending again is always safe: a request has a key, or its capability has no effect. What is never done here is to
choose a new key: that is a new wish, and only the caller can have it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from placet.errors import SAME_KEY, PendingError, PlacetError, TransportError

# A lost reply, a lost connection, a server that is not there; and CANCELLED that this client did not ask for: so the
# transport of a server that leaves ends what reaches it between its last answer and its goodbye. Other foreign codes
# will not change by asking again.
RESENT_CODES = frozenset({"UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN"})

# The server answers a little before the deadline: what is left then is no time to wait again.
PENDING_SECONDS_MIN = 1.0

# Of more, and of what is no number, the transport makes a deadline that is over.
TIMEOUT_SECONDS_MAX = 10 * 366 * 86_400.0

RESERVE_SHARE = 0.1
RESERVE_SECONDS_MAX = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """`attempts_max` bounds the tries after *recorded* failures; a server that is away is bounded by the deadline."""

    attempts_max: int = 4
    delay_seconds_min: float = 0.05
    delay_seconds_max: float = 2.0
    chance: Callable[[], float] = random.random

    def pause_seconds(self, error: PlacetError, sent: int, seconds_left: float) -> float | None:
        """How long to wait before the same request is sent again after it was sent `sent` times; None: do not."""
        if isinstance(error, TransportError):
            if error.code not in RESENT_CODES:
                return None
        elif error.retry_advice != SAME_KEY or (error.action_id and sent >= self.attempts_max):
            return None
        if isinstance(error, PendingError) and seconds_left < PENDING_SECONDS_MIN:
            return None
        pause = max(self.backoff_seconds(sent), error.retry_delay_seconds or 0.0)
        return pause if pause < seconds_left else None

    def backoff_seconds(self, sent: int) -> float:
        """Doubles from `delay_seconds_min`, between half and the whole of it by chance."""
        whole = min(self.delay_seconds_min * 2.0 ** min(sent - 1, 30), self.delay_seconds_max)
        return whole * (0.5 + self.chance() / 2)


class Deadline:
    """The time of one whole call, all its attempts and pauses; None seconds: no end."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if seconds is not None and not 0 < seconds <= TIMEOUT_SECONDS_MAX:
            raise ValueError(f"timeout is {seconds} s; it must be positive, and ten years at most")
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds
        self._reserve = 0.0 if seconds is None else min(seconds * RESERVE_SHARE, RESERVE_SECONDS_MAX)

    def seconds_left(self) -> float:
        return float("inf") if self._end is None else max(self._end - self._clock(), 0.0)

    def working_seconds_left(self) -> float:
        """Less a reserve, in which a call whose reply was lost is still looked up by its key."""
        return max(self.seconds_left() - self._reserve, 0.0)
