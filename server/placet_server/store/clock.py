"""Time is the database's.

A statement that needs it writes ``coalesce(:now::timestamptz, statement_timestamp())``. Its caller passes
``clock.now()``: None in production, so that the database answers with one time per statement; a fixed time
in tests. No other time is written or compared in SQL.
"""

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where ``:now`` comes from."""

    def now(self) -> datetime | None:
        """The time to use instead of the database's; None for the database's."""


class DatabaseClock:
    """The database's own time."""

    def now(self) -> datetime | None:
        return None


class FixedClock:
    """A time that moves only when told to. For tests; may be moved from any thread."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime | None:
        return self._now

    def advance(self, span: timedelta) -> datetime:
        self._now += span
        return self._now
