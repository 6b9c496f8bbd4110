"""What this process knows of attempts: which run, and how others ended, until Placet has it or an hour has gone by.

It answers the same start twice with the same answer, and a lookup after a lost stream. What runs is never forgotten,
and what Placet has settled cannot be begun again, as long as it is remembered.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import grpc

from placet.connector.attempt import Attempt
from placet.connector.refusal import Refused
from placet.v1 import connector_service_pb2 as pb

# How many attempts may wait for children, beside each that may be at work: Placet begins no more.
WAITING_SHARE = 8
KEPT_MAX = 10_000
KEPT_SECONDS = 3600.0
KEPT_BYTES_MAX = 64 * 1024 * 1024


class Key(NamedTuple):
    action_id: str
    attempt: int


@dataclass(slots=True)
class Ended:
    """`answer` None once Placet has it. `is_untouched`: it is certain that the provider was not touched."""

    work: str
    answer: pb.InvokeResponse | None
    is_untouched: bool
    forget_time: float
    bytes: int = 0


class AttemptTable:
    """Belongs to one event loop. `work` names capability, version and input."""

    def __init__(
        self,
        *,
        kept_max: int = KEPT_MAX,
        kept_seconds: float = KEPT_SECONDS,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept_max = kept_max
        self._kept_seconds = kept_seconds
        self._kept_bytes_max = kept_bytes_max
        self._clock = clock
        self._running: dict[Key, tuple[str, Attempt]] = {}
        # In the order in which they are forgotten.
        self._ended: OrderedDict[Key, Ended] = OrderedDict()
        self._bytes = 0

    @property
    def running(self) -> list[Attempt]:
        return [attempt for _, attempt in self._running.values()]

    def has_room(self, working_max: int) -> bool:
        """For one more that works. Who waits for a child does not, or the child might never begin."""
        running = self.running
        working = sum(not attempt.waits_for_child for attempt in running)
        return working < working_max and len(running) < working_max * (1 + WAITING_SHARE)

    def find(self, key: Key, work: str) -> Attempt | pb.InvokeResponse | None:
        """The attempt if it runs, its answer if it has ended, None if it may begin.

        Raises Refused if it is another piece of work, or is over for good.
        """
        self._forget_old()
        running = self._running.get(key)
        ended = self._ended.get(key)
        known = running[0] if running else ended.work if ended else work
        if known != work:
            raise Refused(grpc.StatusCode.ALREADY_EXISTS, "this attempt began with another input")
        if running:
            return running[1]
        if ended is None:
            return None
        if ended.answer is None:
            raise Refused(grpc.StatusCode.ALREADY_EXISTS, "this attempt is over")
        return ended.answer

    def add(self, key: Key, work: str, attempt: Attempt) -> None:
        self._running[key] = (work, attempt)

    def drop(self, key: Key) -> None:
        """It was never begun, so it may come again."""
        self._running.pop(key)

    def end(self, key: Key, answer: pb.InvokeResponse) -> None:
        """The handler has ended."""
        work, attempt = self._running.pop(key)
        forget_time = self._clock() + self._kept_seconds
        self._keep(key, Ended(work, answer, not attempt.may_have_acted, forget_time, answer.ByteSize()))

    def settle(self, key: Key) -> None:
        """Placet has the answer; a second start is turned away from here on."""
        ended = self._ended.get(key)
        if ended is not None:
            self._bytes -= ended.bytes
            ended.answer, ended.bytes = None, 0

    def runs_any_of(self, action_id: str) -> bool:
        return any(key.action_id == action_id for key in self._running)

    def is_over(self, key: Key) -> bool:
        """It ran here, and does not run any more."""
        return key in self._ended

    def ended_of(self, action_id: str, attempt: int) -> list[Ended | None]:
        """Its attempts up to this one, oldest first; None where nothing is known."""
        return [self._ended.get(Key(action_id, number)) for number in range(1, attempt + 1)]

    def _keep(self, key: Key, ended: Ended) -> None:
        self._ended[key] = ended
        self._bytes += ended.bytes
        self._forget_old()
        while len(self._ended) > self._kept_max or self._bytes > self._kept_bytes_max:
            self._forget_first()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._ended and next(iter(self._ended.values())).forget_time <= now:
            self._forget_first()

    def _forget_first(self) -> None:
        _, ended = self._ended.popitem(last=False)
        self._bytes -= ended.bytes
