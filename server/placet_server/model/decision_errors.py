"""What stands between a caller and the beginning of the work: people who have to say yes. And what a voter can meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError


@dataclass(kw_only=True, eq=False)
class ApprovalRequired(PlacetError):
    reason: ClassVar[str] = "APPROVAL_REQUIRED"
    code = Code.FAILED_PRECONDITION
    approval_id: str

    def text(self) -> str:
        return (
            "People have to say yes first. The action is stored and runs once they have: ask again with the same key, "
            "or WaitAction."
        )


@dataclass(kw_only=True, eq=False)
class InputRequired(PlacetError):
    reason: ClassVar[str] = "INPUT_REQUIRED"
    code = Code.FAILED_PRECONDITION
    approval_id: str

    def text(self) -> str:
        return (
            "Somebody has to answer first. The action is stored and ends once one has: ask again with the same key, "
            "or WaitAction."
        )


@dataclass(kw_only=True, eq=False)
class ApprovalDenied(PlacetError):
    reason: ClassVar[str] = "APPROVAL_DENIED"
    code = Code.PERMISSION_DENIED
    approval_id: str

    def text(self) -> str:
        return "Somebody who may decide has said no; nothing was done."


@dataclass(kw_only=True, eq=False)
class ApprovalRevoked(PlacetError):
    reason: ClassVar[str] = "APPROVAL_REVOKED"
    code = Code.PERMISSION_DENIED
    approval_id: str

    def text(self) -> str:
        return "A yes was taken back before the work began; nothing was done."


@dataclass(kw_only=True, eq=False)
class ApprovalExpired(PlacetError):
    reason: ClassVar[str] = "APPROVAL_EXPIRED"
    code = Code.PERMISSION_DENIED
    approval_id: str

    def text(self) -> str:
        return "The approval expired before the work began; nothing was done."


_PROBLEMS = {
    "requester": "you asked for it, or it was asked for in your name",
    "not_selected": "its terms do not name you, nor a role or group of yours",
    "not_a_person": "only people decide, in their own name",
    "login_too_weak": "its terms ask for a stronger login",
    "login_too_old": "its terms ask for a more recent login",
    "material_path_hidden": "you may not see all that its terms say a voter must see",
}


@dataclass(kw_only=True, eq=False)
class NotEligible(PlacetError):
    reason: ClassVar[str] = "NOT_ELIGIBLE"
    code = Code.PERMISSION_DENIED
    approval_id: str
    problem: str

    def text(self) -> str:
        return f"You may not decide this: {_PROBLEMS.get(self.problem, self.problem)}."


_RULES = {
    "other_content": "the decision id is known with other content",
    "voted_otherwise": "you have decided it otherwise",
    "taken_back": "you have taken your vote back",
}


@dataclass(kw_only=True, eq=False)
class DecisionConflict(PlacetError):
    reason: ClassVar[str] = "DECISION_CONFLICT"
    code = Code.ALREADY_EXISTS
    approval_id: str
    rule: str

    def text(self) -> str:
        return f"The decision was not counted: {_RULES.get(self.rule, self.rule)}."
