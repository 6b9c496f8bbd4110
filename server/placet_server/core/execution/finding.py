"""What became of an effect that may have happened, as somebody found out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from placet_server.core.execution.judgement import NOT_DONE, Returned, ReturnedBadly


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """It has happened. `ending`: what the attempt would have returned, past the output gate."""

    ending: Returned | ReturnedBadly


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCommitted:
    """It has not happened. Proves something once the attempt can no longer act.

    `not_running`: who answers knows that the attempt has ended, because it ran there.
    """

    retryable: bool = False
    code: str = NOT_DONE
    message: str = ""
    not_running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StillRunning:
    """The attempt is at work yet, and will answer itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotKnown:
    """Nobody can say now."""

    message: str = ""


Finding: TypeAlias = Committed | NotCommitted | StillRunning | NotKnown
