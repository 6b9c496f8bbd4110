"""The session gate: whether what is asked for may be a run of that session at all. Whether it is its turn is found out
where it is stored.
"""

from __future__ import annotations

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.session import get_session
from placet_server.model.caller import EVERY_SCOPE, Caller
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.errors import FieldViolation, MalformedRequest, ScopeMissing
from placet_server.model.session import SESSION_SCOPE, SessionUse


async def check_session(journal: Journal, caller: Caller, use: SessionUse, capability: Capability) -> None:
    """Raises ScopeMissing, MalformedRequest, NotFound."""
    if not {SESSION_SCOPE, EVERY_SCOPE} & caller.scopes:
        raise ScopeMissing(scope=SESSION_SCOPE)
    if capability.kind is not CapabilityKind.AGENT:
        raise _refused("agent", f"{capability.name} is no agent, and only runs of agents are in sessions")
    session = await get_session(journal, caller, use.session_id)
    if session.agent not in ("", capability.name):
        raise _refused("session_agent", f"the session is with {session.agent}")


def _refused(rule: str, description: str) -> MalformedRequest:
    violation = FieldViolation(field="options.session_id", rule=rule, description=description)
    return MalformedRequest(violations=(violation,))
