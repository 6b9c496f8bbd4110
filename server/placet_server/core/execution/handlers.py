"""Which handler of this process serves which capability."""

from __future__ import annotations

from collections.abc import Iterable

from placet.app import Tool
from placet_server.model.manifest import HandlerClaims


class HandlerTable:
    """By capability name and version. Fixed after start."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {(tool.name, tool.version): tool for tool in tools}

    def find(self, capability: str, version: str) -> Tool | None:
        return self._tools.get((capability, version))

    def claims(self) -> dict[tuple[str, str], HandlerClaims]:
        """What each handler can do, for the admission of its contract."""
        return {
            key: HandlerClaims(
                streaming=tool.streaming,
                cancellable=tool.cancellable,
                effect_marked=tool.effect_marked,
                lookup=tool.lookup is not None,
            )
            for key, tool in self._tools.items()
        }

    def served(self) -> tuple[str, ...]:
        """As capability@version, in order."""
        return tuple(sorted(f"{name}@{version}" for name, version in self._tools))
