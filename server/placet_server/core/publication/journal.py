"""The store as the core sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from placet_server.core.publication.alarm import Alarm
from placet_server.core.publication.boundary import Boundary
from placet_server.core.publication.callback import Callbacks
from placet_server.core.publication.doorbell import Doorbell
from placet_server.core.publication.feed_tail import FeedTail
from placet_server.core.publication.hub import Hub
from placet_server.core.publication.lane_writer import LaneWriter
from placet_server.core.publication.relay import Relay
from placet_server.core.publication.share import SharedReads
from placet_server.model.durability import DurabilityClass
from placet_server.model.line import Line
from placet_server.store.batch import BatchWriter
from placet_server.store.clock import Clock
from placet_server.store.pool import Pool


def _unnoted(queue: str, reason: str) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """`poll_seconds`: how soon news of another process's making are seen, at the latest.
    `relay`: what is told to other processes; `hub` and `doorbell` tell through it. `alarm`: wakes the sweep here.
    `reattach_grace_seconds`: how long an executed action that is ready again is left to its caller.
    `note_dead`: told of each dead letter, its queue and its reason.
    `shared`: what the watchers of an action read together.
    `feed_tail`: when its index last learned of the newest rows.
    `callbacks`: who else is told."""

    pool: Pool
    writer: BatchWriter
    lanes: LaneWriter
    clock: Clock
    boot_id: str
    durability: DurabilityClass
    relay: Relay = field(default_factory=Relay)
    hub: Hub = field(default_factory=Hub)
    doorbell: Doorbell = field(default_factory=Doorbell)
    alarm: Alarm = field(default_factory=Alarm)
    boundary: Boundary = field(default_factory=Boundary)
    note_dead: Callable[[str, str], None] = field(default=_unnoted)
    shared: SharedReads = field(default_factory=SharedReads)
    feed_tail: FeedTail = field(default_factory=FeedTail)
    callbacks: Callbacks = field(default_factory=Callbacks)
    poll_seconds: float = 0.25
    reattach_grace_seconds: float = 10.0
    idle_checkpoint_seconds: float = 15.0

    def announce(self, line: Line, delay_seconds: float) -> None:
        """An action has got its place in line, and may be begun after so long."""
        if delay_seconds <= 0:
            self.doorbell.ring(line)
        else:
            self.alarm.set(delay_seconds)
