"""What runs which capability: a handler of this process, one behind a connector, or a program."""

from __future__ import annotations

from collections.abc import Iterable

from placet.app import Tool
from placet_server.core.execution.connectors import Connectors, NoConnectors
from placet_server.core.execution.program import NoPrograms, Programs
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.manifest import HandlerClaims


class HandlerTable:
    """By capability name and version. This process's own are fixed after start, and nothing shadows them."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        connectors: Connectors | None = None,
        built_in: Iterable[Tool] = (),
        programs: Programs | None = None,
    ) -> None:
        self._built_in = {(tool.name, tool.version): tool for tool in built_in}
        self._tools = {(tool.name, tool.version): tool for tool in tools} | self._built_in
        self.connectors: Connectors = connectors or NoConnectors()
        self.programs: Programs = programs or NoPrograms()

    def find_for(self, capability: Capability, tenant: str) -> Tool | None:
        """What runs it here: a program, if it is an agent; else its handler."""
        if capability.kind is CapabilityKind.AGENT:
            return self.programs.tool(capability)
        return self.find(capability.name, capability.version, tenant)

    def is_here(self, capability: Capability) -> bool:
        """A handler of this process, or a program: nobody else has to have room for it."""
        if capability.kind is CapabilityKind.AGENT:
            return True
        return (capability.name, capability.version) in self._tools

    def find(self, capability: str, version: str, tenant: str) -> Tool | None:
        """Of this process, else behind a connector that the tenant has admitted."""
        own = self._tools.get((capability, version))
        return own if own is not None else self.connectors.find(tenant, capability, version)

    def room(self, capability: str, version: str, tenant: str) -> int | None:
        """How many attempts may begin there now. None: that is not for this capability to say."""
        if (capability, version) in self._tools:
            return None
        return self.connectors.room(tenant, capability, version)

    def children_only(self, capability: str, version: str, tenant: str) -> bool:
        """Nothing but what a handler has called may begin there now."""
        if (capability, version) in self._tools:
            return False
        return self.connectors.children_only(tenant, capability, version)

    def claims(self) -> dict[tuple[str, str], HandlerClaims]:
        """What each handler can do, for the admission of its contract."""
        return {
            key: HandlerClaims(
                streaming=tool.streaming,
                cancellable=tool.cancellable,
                effect_marked=tool.effect_marked,
                lookup=tool.lookup is not None,
                composes=tool.is_async,
            )
            for key, tool in self._tools.items()
        }

    def served(self) -> tuple[str, ...]:
        """As capability@version, in order; without what every server has."""
        return tuple(
            sorted(f"{name}@{version}" for name, version in self._tools.keys() - self._built_in.keys())
        )
