"""What a handler can meet that calls another capability as a step of its work: one class per ErrorReason, as in
`errors.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError


@dataclass(kw_only=True, eq=False)
class JournalMismatch(PlacetError):
    reason: ClassVar[str] = "JOURNAL_MISMATCH"
    code = Code.FAILED_PRECONDITION
    is_refusal: ClassVar[bool] = True
    step_path: str
    action_id: str

    def text(self) -> str:
        return f"Step {self.step_path} was {self.action_id}, which has another capability, version or input."


@dataclass(kw_only=True, eq=False)
class ChildLimit(PlacetError):
    reason: ClassVar[str] = "CHILD_LIMIT"
    code = Code.FAILED_PRECONDITION
    is_refusal: ClassVar[bool] = True
    limit: str
    limit_max: int

    def text(self) -> str:
        return f"An action calls no more children than this: {self.limit} is at most {self.limit_max}."
