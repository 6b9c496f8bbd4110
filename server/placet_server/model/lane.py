"""What the dispatcher divides its slots over."""

from __future__ import annotations

from typing import NamedTuple


class Lane(NamedTuple):
    """Ready actions that one tenant has in one queue for one version of one capability."""

    queue: str
    capability: str
    version: str
    tenant: str


class ReadyLane(NamedTuple):
    """A lane that has work, and what is first in it."""

    lane: Lane
    priority: int
    ready_time_us: int


class Share(NamedTuple):
    """How much of a lane may be claimed now."""

    lane: Lane
    count_max: int
