"""What a schema may cost: how often one place of a value is visited, when only judging and when explaining.

Judging remembers what it has judged, so it is linear in the value. Explaining follows every alternative at every level:
a recursive union explains a value of depth twenty in minutes.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

# A schema and its applicators at one place of the value: more than any author writes, less than a denial of service.
STEPS_IN_PLACE_MAX = 10_000

REFERENCES = ("$ref", "$dynamicRef")
# Members whose values are data, not schemas.
DATA = frozenset({"const", "enum", "default", "examples", "required", "type", "dependentRequired"})
# Members whose values hold schemas by name.
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})

_DEFINITIONS = frozenset({"$defs", "definitions"})
_ANCHORS = ("$anchor", "$dynamicAnchor")
_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
_IN_PLACE = frozenset({*_IN_PLACE_ONE, *_IN_PLACE_MANY, "dependentSchemas"})


class SchemaTooCostly(ValueError):
    """The message says why."""


class SchemaCost:
    """Counts how often one place of the input may be visited: `$ref` and the combining keywords stay at the
    same place.

    Two references in an allOf, thirty levels deep, are a billion visits; a reference that reaches itself
    without descending into the input never ends."""

    def __init__(self, root: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
        self._root = root
        self._nodes = {id(node): node for node in nodes}
        self._anchors = {
            anchor: node for node in nodes for name in _ANCHORS if isinstance(anchor := node.get(name), str)
        }
        self._steps: dict[int, int] = {}
        self._open: set[int] = set()
        # None while it is being counted: met again then, it recurs.
        self._lines: dict[int, int | None] = {}
        self._recurs = False

    def check(self) -> None:
        """Raises SchemaTooCostly."""
        for node in self._nodes.values():
            if self._count(node) > STEPS_IN_PLACE_MAX:
                raise SchemaTooCostly(
                    f"combines more than {STEPS_IN_PLACE_MAX} schemas at one place of the value"
                )
        if self._ways(self._root) > STEPS_IN_PLACE_MAX:
            raise SchemaTooCostly(f"leads in more than {STEPS_IN_PLACE_MAX} ways to one place of the value")

    def explaining(self, depth: int) -> int:
        """How many ways at most lead to one place of a value of that depth."""
        if not self._recurs:
            return self._ways(self._root)
        widest = max(self._alternatives(node) for node in self._nodes.values())
        return int(widest**depth)

    def _ways(self, node: Any) -> int:
        """Over all levels of the value below. Where it recurs judging remembers, so that this counts once."""
        if not isinstance(node, dict):
            return 1
        key = id(node)
        if key not in self._lines:
            self._lines[key] = None
            below = max((self._ways(child) for child in self._below(node)), default=1)
            self._lines[key] = below + sum(self._ways(child) for child in self._children(node))
        ways = self._lines[key]
        if ways is None:
            self._recurs = True
        return ways or 1

    def _alternatives(self, node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        return sum(self._alternatives(child) for child in self._children(node)) or 1

    def _count(self, node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        key = id(node)
        if key in self._steps:
            return self._steps[key]
        if key in self._open:
            raise SchemaTooCostly("a reference leads back to itself without descending into the value")
        self._open.add(key)
        self._steps[key] = steps = 1 + sum(self._count(child) for child in self._children(node))
        self._open.remove(key)
        return steps

    def _children(self, node: dict[str, Any]) -> Iterator[Any]:
        for name in REFERENCES:
            if isinstance(target := node.get(name), str):
                found = self._target(target)
                if isinstance(found, dict) and id(found) not in self._nodes:
                    raise SchemaTooCostly(f"{name} must point at a schema, not at data")
                yield found
        for name in _IN_PLACE_ONE:
            if name in node:
                yield node[name]
        for name in _IN_PLACE_MANY:
            if isinstance(group := node.get(name), list):
                yield from group
        if isinstance(dependent := node.get("dependentSchemas"), dict):
            yield from dependent.values()

    def _below(self, node: dict[str, Any]) -> Iterator[Any]:
        for name, member in node.items():
            if name in DATA or name in _DEFINITIONS or name in _IN_PLACE:
                continue
            if isinstance(member, list):
                yield from member
            elif name in MAPS and isinstance(member, dict):
                yield from member.values()
            else:
                yield member

    def _target(self, reference: str) -> Any:
        fragment = unquote(reference[1:])
        if not fragment.startswith("/"):
            return self._anchors.get(fragment) if fragment else self._root
        node: Any = self._root
        for step in fragment[1:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(step)
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node
