"""What of a JSON value must not be seen, by JSON Pointers in which `*` is any element: see DataRule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from placet_server.model.json_text import canonicalize_value

HIDDEN_MAX = 256
_BYTES_MAX = 4 * 2**20


def hidden_text(value: Any, paths: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The canonical text of the value with null wherever a path leads, and the pointers of those places, at most
    HIDDEN_MAX of them.
    """
    patterns = [_parts(path) for path in paths]
    found: list[str] = []
    shown = _shown(value, patterns, "", found)
    return canonicalize_value(shown, bytes_max=_BYTES_MAX).text, tuple(found[:HIDDEN_MAX])


def is_hidden(pointer: str, paths: Sequence[str]) -> bool:
    """Whether a path leads to it, above it, or below it."""
    parts = _parts(pointer)
    return any(
        all(want in ("*", have) or have == "*" for want, have in zip(_parts(path), parts, strict=False))
        for path in paths
    )


def _shown(value: Any, patterns: list[list[str]], pointer: str, found: list[str]) -> Any:
    if any(not pattern for pattern in patterns):
        found.append(pointer)
        return None
    if not patterns:
        return value
    if isinstance(value, dict):
        return {
            name: _shown(member, _below(patterns, name), pointer + pointer_to(name), found)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [
            _shown(member, _below(patterns, str(index)), f"{pointer}/{index}", found)
            for index, member in enumerate(value)
        ]
    return value


def _below(patterns: list[list[str]], name: str) -> list[list[str]]:
    return [pattern[1:] for pattern in patterns if pattern[0] in ("*", name)]


def _parts(pointer: str) -> list[str]:
    return list(_unescaped(pointer)) if pointer else []


def _unescaped(pointer: str) -> Iterator[str]:
    for part in pointer.split("/")[1:]:
        yield part.replace("~1", "/").replace("~0", "~")


def pointer_to(name: str) -> str:
    """To a member of an object, from there."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
