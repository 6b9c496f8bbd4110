"""What a caller meets of agents and their runs: one class per ErrorReason, as in `errors.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placet_server.model.errors import Code, PlacetError


@dataclass(kw_only=True, eq=False)
class AgentUnavailable(PlacetError):
    """Nothing was done. `problem`: extra_missing, or what else `Programs.problem` says."""

    reason: ClassVar[str] = "AGENT_UNAVAILABLE"
    code = Code.FAILED_PRECONDITION
    is_refusal: ClassVar[bool] = True
    agent: str
    problem: str

    def text(self) -> str:
        return f"{self.agent!r} is an agent, and no run of it can begin on this server ({self.problem})."
