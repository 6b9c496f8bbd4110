"""What a caller meets of agents and their runs: one class per ErrorReason, as in `errors.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError


@dataclass(kw_only=True, eq=False)
class AgentUnavailable(PlacetError):
    """Nothing was done. `problem`: extra_missing, or what else `Programs` says; `model`: which the agent names."""

    reason: ClassVar[str] = "AGENT_UNAVAILABLE"
    code = Code.FAILED_PRECONDITION
    is_refusal: ClassVar[bool] = True
    agent: str
    problem: str
    model: str = ""

    def text(self) -> str:
        lacks = _LACKS.get(self.problem, "").format(model=self.model) if self.model else ""
        told = f": {lacks} ({self.problem})." if lacks else f" ({self.problem})."
        return f"{self.agent!r} is an agent, and no run of it can begin on this server{told}"

    def metadata(self) -> dict[str, str]:
        return {"agent": self.agent, "problem": self.problem}


# Without where anything is: that is for operators.
_LACKS = {
    "model_unknown": "no model here has the name {model!r}",
    "credential_missing": "the model {model!r} has no credential here",
    "price_unknown": "the model {model!r} has no price here, and the budget is in money",
}


@dataclass(kw_only=True, eq=False)
class SessionBusy(PlacetError):
    """Nothing was stored. `action_id`: the run that is not over. `problem`: not_over, or of one that may wait for it
    line_full or needs_approval; of who closes the session not_cancelled.
    """

    reason: ClassVar[str] = "SESSION_BUSY"
    code = Code.ABORTED
    is_refusal: ClassVar[bool] = True
    session_id: str
    action_id: str
    problem: str = "not_over"

    def text(self) -> str:
        return f"The session has a run that is not over, {self.action_id}: {_BUSY.get(self.problem, self.problem)}."


_BUSY = {
    "not_over": "wait for it, or say with on_busy that this one waits for its turn or takes its place",
    "line_full": "as many as may wait for their turn do already; send this one again once one of them is over",
    "needs_approval": "people have to say yes to this one before it begins, so it cannot wait; send it again then",
    "not_cancelled": "wait for it, or close the session with cancel_active",
}


@dataclass(kw_only=True, eq=False)
class SessionClosed(PlacetError):
    """Nothing was stored."""

    reason: ClassVar[str] = "SESSION_CLOSED"
    code = Code.FAILED_PRECONDITION
    is_refusal: ClassVar[bool] = True
    session_id: str

    def text(self) -> str:
        return "The session is closed, or was idle for its time: begin another one."


@dataclass(kw_only=True, eq=False)
class ResumeTokenSpent(PlacetError):
    """Nothing was done. `problem`: expired, or not_current, which it is if somebody has used it."""

    reason: ClassVar[str] = "RESUME_TOKEN_SPENT"
    code = Code.PERMISSION_DENIED
    session_id: str
    problem: str

    def text(self) -> str:
        return f"This is not the session's resume token any more ({self.problem}): somebody may have gone on with it."
