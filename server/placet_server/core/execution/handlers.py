"""Which handler of this process serves which capability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from placet.app import Tool


class HandlerTable:
    """By capability name and version. Fixed after start."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {(tool.name, tool.version): tool for tool in tools}

    def find(self, capability: str, version: str) -> Tool | None:
        return self._tools.get((capability, version))

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name_and_version: object) -> bool:
        return name_and_version in self._tools
