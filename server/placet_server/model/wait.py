"""What an action waits for, before it may begin."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

WAITS_MAX = 8


class WaitKind(StrEnum):
    """For what kind of answer."""

    APPROVAL = "APPROVAL"
    INPUT = "INPUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """`step_path`: which step of the action that was asked about waits, the steps on the way joined by "/"; empty: that
    action itself.
    """

    kind: WaitKind
    approval_id: str
    action_id: str
    step_path: str = ""
    title: str
    expire_time_us: int
