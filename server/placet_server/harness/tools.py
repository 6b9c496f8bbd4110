"""Which capabilities a run may call, as the catalogue has them when it opens: pinned by version, so that what is
admitted later does not change a run that is under way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol

from placet_server.core.admission.builtin import is_reserved
from placet_server.core.admission.catalog import CatalogEntry
from placet_server.harness.alias import alias_of
from placet_server.harness.delegate import schema_of
from placet_server.model.agent import (
    ALL_BELOW,
    TOOLS_MAX,
    AgentSpec,
    DelegateChoice,
    ToolChoice,
    by_name,
    choice_for,
)
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.entry import PinnedTool
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.store.catalog import StoredCapability

DESCRIPTION_LENGTH_MAX = 4096
_PAGE_SIZE = 100
# Of names that patterns cover, most of which may have no version in service.
_LOOKED_AT_MAX = 2000


class ToolsRefused(ValueError):
    """No run can open with these tools. The text is for whoever asked."""


class Offers(Protocol):
    """The part of the catalogue that is asked here."""

    async def find(self, tenant: str, name: str, version: str | None = None) -> StoredCapability: ...

    async def is_answered(self, found: StoredCapability) -> bool: ...

    async def list_capabilities(
        self, tenant: str, *, page_size: int, name_prefix: str = "", after: tuple[str, str] = ("", "")
    ) -> list[CatalogEntry]: ...


async def resolve(
    offers: Offers, spec: AgentSpec, tenant: str, asking: Sequence[str] = ()
) -> tuple[PinnedTool, ...]:
    """By name, each once, whether anything serves it now or not: what cannot be called is told by its call. `asking`:
    who has asked this agent, the nearest first, itself before them; none of them is asked by it. Raises ToolsRefused,
    StoreUnavailable.
    """
    found: dict[str, PinnedTool] = {}
    for tool in spec.tools:
        if not tool.is_pattern:
            found[tool.name] = await _named(offers, tool, tenant)
    chosen = by_name(spec.tools)
    for tool in spec.tools:
        if tool.is_pattern:
            async for each in covered(offers, tool, tenant):
                capability = each.capability
                if choice_for(chosen, capability.name) is tool:
                    found[capability.name] = _pinned(capability, tool.scopes)
    if len(found) > TOOLS_MAX:
        raise ToolsRefused(
            f"its tools are {len(found)} capabilities, and may be {TOOLS_MAX}: name fewer, or narrower patterns"
        )
    for delegate in spec.delegates:
        found[delegate.agent] = await _delegated(offers, delegate, tenant, asking)
    return tuple(found[name] for name in sorted(found))


async def _delegated(
    offers: Offers, delegate: DelegateChoice, tenant: str, asking: Sequence[str]
) -> PinnedTool:
    capability = await _found(offers, delegate.agent, delegate.version, tenant)
    if capability.agent is None:
        raise ToolsRefused(f"{delegate.agent} is no agent")
    barred = ""
    if delegate.agent in asking:
        around = [delegate.agent, *reversed(asking[: asking.index(delegate.agent)]), delegate.agent]
        barred = f"Not run: agents would ask each other without end: {' → '.join(around)}."
    pinned = _pinned(capability, delegate.scopes)
    return replace(
        pinned,
        input_schema=schema_of(capability.agent),
        description=delegate.description or pinned.description,
        delegate=True,
        budget=delegate.budget,
        barred=barred,
    )


async def _found(offers: Offers, name: str, version: str, tenant: str) -> Capability:
    try:
        return (await offers.find(tenant, name, version or None)).capability
    except CapabilityNotFound:
        told = f" in version {version}" if version else ""
        raise ToolsRefused(f"there is no {name}{told}") from None


async def _named(offers: Offers, tool: ToolChoice, tenant: str) -> PinnedTool:
    capability = await _found(offers, tool.name, tool.version, tenant)
    if capability.kind is CapabilityKind.AGENT:
        raise ToolsRefused(f"{tool.name} is an agent, and no tool")
    return _pinned(capability, tool.scopes)


async def covered(offers: Offers, tool: ToolChoice, tenant: str) -> AsyncIterator[StoredCapability]:
    """By a pattern, in the versions that their names mean now; agents and what governs the server are never covered.
    Raises ToolsRefused if it is too wide to look at.
    """
    prefix = tool.name.removesuffix(ALL_BELOW) + "."
    after, looked_at, known = ("", ""), 0, ""
    while looked_at < _LOOKED_AT_MAX:
        page = await offers.list_capabilities(tenant, page_size=_PAGE_SIZE, name_prefix=prefix, after=after)
        for entry in page:
            listed = entry.stored.capability
            after = (listed.name, listed.version)
            if listed.name == known or is_reserved(listed.name):
                continue
            known = listed.name
            try:
                current = await offers.find(tenant, known)
            except CapabilityNotFound:
                continue
            if current.capability.kind is not CapabilityKind.AGENT:
                yield current
        looked_at += len(page)
        if len(page) < _PAGE_SIZE:
            return
    raise ToolsRefused(f"{tool.name} covers more than {_LOOKED_AT_MAX} versions of capabilities")


def _pinned(capability: Capability, scopes: frozenset[str] | None) -> PinnedTool:
    told = capability.presentation
    return PinnedTool(
        alias=alias_of(capability.name),
        name=capability.name,
        version=capability.version,
        contract_digest=capability.contract_digest,
        input_schema=capability.input_schema,
        description=(told.description or told.title)[:DESCRIPTION_LENGTH_MAX],
        scopes=None if scopes is None else tuple(sorted(scopes)),
        sensitive=capability.contract.data.sensitive_paths,
    )
