"""What a caller meets of a run that has spent what it may: one class per ErrorReason, as in `errors.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError


@dataclass(kw_only=True, eq=False)
class TurnBudgetSpent(PlacetError):
    reason: ClassVar[str] = "TURN_BUDGET"
    code = Code.ABORTED
    turns: str

    def text(self) -> str:
        return f"The run may take no further turn, its own and those of whom it asks: of {self.turns} too few are left."


@dataclass(kw_only=True, eq=False)
class LoopBudgetSpent(PlacetError):
    """`budget`: calls or equal_calls."""

    reason: ClassVar[str] = "LOOP_BUDGET"
    code = Code.ABORTED
    budget: str
    budget_max: str

    def text(self) -> str:
        return f"The run may not call more often ({self.budget}: {self.budget_max})."


@dataclass(kw_only=True, eq=False)
class SpendBudgetSpent(PlacetError):
    """`budget`: tokens, cost_micros or active_ms."""

    reason: ClassVar[str] = "SPEND_BUDGET"
    code = Code.ABORTED
    budget: str
    budget_max: str

    def text(self) -> str:
        what = (
            "" if self.budget == "active_ms" else ", and what its next turn may take at most would pass that"
        )
        return f"The run may not spend more than {self.budget_max} ({self.budget}){what}."


def bound_of(budget: str, bound: int) -> str:
    """As the row of a run keeps it that has spent it: `actions.cause`."""
    return f"{budget}={bound}"


def budget_spent(reason: str, cause: str) -> TurnBudgetSpent | LoopBudgetSpent | SpendBudgetSpent | None:
    """What who asks for such a run is told. None: it is no budget of a run that it has spent."""
    budget, _, bound = cause.partition("=")
    match reason:
        case "TURN_BUDGET":
            return TurnBudgetSpent(turns=bound)
        case "LOOP_BUDGET":
            return LoopBudgetSpent(budget=budget, budget_max=bound)
        case "SPEND_BUDGET":
            return SpendBudgetSpent(budget=budget, budget_max=bound)
    return None
