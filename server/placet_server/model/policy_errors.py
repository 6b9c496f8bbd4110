"""What policies, and those who write them, are refused for: one class per ErrorReason, as in `errors.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, FieldViolation, PlacetError

_WHY = {
    "forbidden": "is forbidden by {policies}",
    "not_permitted": "is permitted by no policy",
    "not_evaluated": "cannot be decided: {policies} failed",
    "asks_too_much": "cannot be decided: {policies} ask for more approvals than one request can carry",
    "not_answerable": "cannot be answered: one person answers, and with {policies} nobody alone is all who must",
    "not_readable": "cannot be decided: a policy reads a part of the input that it cannot be shown exactly",
}


@dataclass(kw_only=True, eq=False)
class PolicyRefused(PlacetError):
    """`policies`: the names of those that decided."""

    reason: ClassVar[str] = "POLICY_REFUSED"
    code = Code.PERMISSION_DENIED
    is_refusal: ClassVar[bool] = True
    capability: str
    policies: str
    problem: str
    refusal_id: str

    def text(self) -> str:
        why = _WHY.get(self.problem, _WHY["not_permitted"]).format(policies=self.policies or "a policy")
        return f"{self.capability!r} {why}; `placet explain {self.refusal_id}` shows it."


@dataclass(kw_only=True, eq=False)
class PolicySetRefused(PlacetError):
    reason: ClassVar[str] = "POLICY_SET_REFUSED"
    code = Code.INVALID_ARGUMENT
    name: str
    violations: tuple[FieldViolation, ...] = ()

    def text(self) -> str:
        return f"Policy set {self.name!r} has {len(self.violations)} problem(s); ValidatePolicySet lists them all."

    def metadata(self) -> dict[str, str]:
        return {"name": self.name, "problems": str(len(self.violations))}
