"""What the runs of an agent would lack if one began now, for people who look at it. No run goes on from it: one opens
with what the catalogue has then, and each of its calls passes the gates.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from placet_server.core.execution.program import Lack
from placet_server.harness.tools import Offers, ToolsRefused, covered
from placet_server.model.agent import AgentSpec, ToolChoice, by_name, choice_for
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.gate_errors import CapabilityNotFound


async def lacks_of(
    offers: Offers, spec: AgentSpec, tenant: str, trouble: Callable[[Capability], str]
) -> AsyncGenerator[Lack, None]:
    """Of its tools and delegates, in the order in which it names them. `trouble`: why a delegate cannot be asked here.
    Raises StoreUnavailable.
    """
    chosen = by_name(spec.tools)
    for tool in spec.tools:
        if tool.is_pattern:
            async for lack in _of_pattern(offers, tool, chosen, tenant):
                yield lack
        elif (problem := await _of_tool(offers, tool, tenant)) is not None:
            yield Lack(problem, tool.name)
    for delegate in spec.delegates:
        try:
            found = (await offers.find(tenant, delegate.agent, delegate.version or None)).capability
        except CapabilityNotFound:
            yield Lack("delegate_unknown", delegate.agent)
            continue
        if found.agent is None:
            yield Lack("delegate_not_agent", delegate.agent)
        elif trouble(found):
            yield Lack("delegate_unavailable", delegate.agent)


async def _of_tool(offers: Offers, tool: ToolChoice, tenant: str) -> str | None:
    try:
        found = await offers.find(tenant, tool.name, tool.version or None)
    except CapabilityNotFound:
        return "tool_unknown"
    if found.capability.kind is CapabilityKind.AGENT:
        return "tool_is_agent"
    return None if await offers.is_answered(found) else "tool_unserved"


async def _of_pattern(
    offers: Offers, tool: ToolChoice, chosen: dict[str, ToolChoice], tenant: str
) -> AsyncGenerator[Lack, None]:
    is_empty = True
    try:
        async for found in covered(offers, tool, tenant):
            is_empty = False
            name = found.capability.name
            if choice_for(chosen, name) is tool and not await offers.is_answered(found):
                yield Lack("tool_unserved", name)
    except ToolsRefused:
        yield Lack("tools_too_many", tool.name)
        return
    if is_empty:
        yield Lack("tool_pattern_empty", tool.name)
