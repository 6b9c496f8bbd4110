"""What the dispatcher divides its slots over."""

from __future__ import annotations

from typing import NamedTuple

PRIORITY_LAST = 9


class Line(NamedTuple):
    """Ready actions that one tenant has in one queue for one version of one capability."""

    queue: str
    capability: str
    version: str
    tenant: str


class ReadyLine(NamedTuple):
    """A line that has work, and what is first in it."""

    line: Line
    priority: int
    ready_time_us: int


class Share(NamedTuple):
    """How much of a line may be claimed now: nothing beyond `priority_last`, before which other lines' work comes."""

    line: Line
    count_max: int
    priority_last: int = PRIORITY_LAST
