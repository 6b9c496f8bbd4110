"""What became of an effect that may have happened, as somebody found out, and what that makes of the action: pure.

That it happened can be said at once, as no later answer makes it untrue. That it did not happen proves something once
the lost attempt can act no more, and until then it is asked again. Whoever does not know is asked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from placet_server.core.execution.ending import Returned, ReturnedBadly
from placet_server.core.execution.judgement import NOT_DONE, judge, judge_undone
from placet_server.core.publication.settle import Verdict
from placet_server.model.action import Action


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
    """Nobody can say now. `is_final`: nor later, once the attempt can act no more."""

    message: str = ""
    is_final: bool = False


Finding: TypeAlias = Committed | NotCommitted | StillRunning | NotKnown


def judge_finding(action: Action, finding: Finding, *, is_over: bool, now_us: int) -> Verdict | None:
    """`action` is the ambiguous row. `is_over`: its lost attempt could act no more when this was found out.

    None: not enough; ask again.
    """
    match finding:
        case Committed():
            return judge(action, finding.ending, now_us=now_us)
        case NotCommitted():
            if not (is_over or finding.not_running):
                return None
            retryable = finding.retryable
            return judge_undone(action, finding.code, finding.message, retryable=retryable, now_us=now_us)
        case StillRunning() | NotKnown():
            return None
        case _:
            assert_never(finding)
