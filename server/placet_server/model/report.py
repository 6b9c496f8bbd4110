"""What was found and done when somebody asked for recovery."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import orjson

from placet_server.model.document import read, written


class ReportFamily(StrEnum):
    """What a section is about."""

    LEASES = "LEASES"
    QUEUES = "QUEUES"
    AMBIGUOUS = "AMBIGUOUS"
    DEAD_LETTERS = "DEAD_LETTERS"
    APPROVALS = "APPROVALS"
    CALLBACKS = "CALLBACKS"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEntry:
    """`outcome`: how it stands. `next_step`: the command that continues, empty if nobody has to do anything."""

    id: str = ""
    what: str
    outcome: str
    next_step: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """`found`: how many there were. What was done made some ready again (`replayed`), in doubt (`ambiguous`), or ended
    them (`ended`); the others wait on. `note`: for people, such as why something was not done."""

    family: ReportFamily
    found: int = 0
    replayed: int = 0
    waiting: int = 0
    ambiguous: int = 0
    ended: int = 0
    note: str = ""
    entries: tuple[ReportEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`validate_only`: nothing was done."""

    report_id: str
    create_time_us: int
    requester: str
    validate_only: bool
    sections: tuple[ReportSection, ...]

    def to_text(self) -> str:
        return orjson.dumps(written(self), option=orjson.OPT_SORT_KEYS).decode()

    def without_entries(self) -> Report:
        return replace(self, sections=tuple(replace(section, entries=()) for section in self.sections))

    @classmethod
    def from_text(cls, text: str) -> Report:
        """Raises DocumentRefused for what no report can be."""
        return read(cls, orjson.loads(text))
