"""An input as a tree, for whoever has to judge it: the members that the contract names first come first, text is in
quotes, nothing in it can move the cursor or look like a member that is not there.

What is too long is cut in its middle, and the cut says how long it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from placet_server.cli.escape import escape
from placet_server.cli.lookalike import mixed_writing

LINES_MAX = 200
HEAD_CHARACTERS = 300
TAIL_CHARACTERS = 60
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def tree_lines(value: Any, *, first: Sequence[str] = (), hidden: Sequence[str] = ()) -> list[str]:
    """`first`: members of the top to begin with. `hidden`: JSON Pointers of what was left out. Escaped."""
    concealed = frozenset(hidden)
    if isinstance(value, dict):
        begin = [name for name in first if name in value]
        value = {name: value[name] for name in (*begin, *(name for name in value if name not in begin))}
    lines: list[str] = []
    left_out = 0
    for line in _lines(value, "", "", concealed):
        if len(lines) < LINES_MAX:
            lines.append(line)
        else:
            left_out += 1
    return [*lines, f"… and {left_out} more lines, NOT SHOWN HERE"] if left_out else lines


def text_of(value: Any) -> str:
    """A scalar as JSON, on one line. Escaped."""
    if not isinstance(value, str) or len(value) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        shown = _json(value)
    else:
        digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
        shown = (
            f"{_json(value[:HEAD_CHARACTERS])} … {_json(value[-TAIL_CHARACTERS:])}  "
            f"(CUT: {len(value)} characters in all, SHA-256 {digest})"
        )
    strange = mixed_writing(value) if isinstance(value, str) else ""
    return escape(shown) + (f"  (LOOKS ALIKE: {strange})" if strange else "")


def _lines(value: Any, indent: str, path: str, hidden: frozenset[str]) -> Iterator[str]:
    if path in hidden:
        yield f"{indent}(HIDDEN FROM YOU)"
    elif isinstance(value, dict) and value:
        width = max(len(_name(name)) for name in value) if len(value) <= LINES_MAX else 0
        for name, member in value.items():
            below = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            yield from _member(f"{indent}{_name(name):<{min(width, 24)}}", member, indent, below, hidden)
    elif isinstance(value, list) and value:
        for number, element in enumerate(value):
            yield from _member(f"{indent}[{number}]", element, indent, f"{path}/{number}", hidden)
    else:
        yield indent + text_of(value)


def _member(head: str, value: Any, indent: str, path: str, hidden: frozenset[str]) -> Iterator[str]:
    if path not in hidden and isinstance(value, dict | list) and value:
        yield head.rstrip()
        yield from _lines(value, indent + "  ", path, hidden)
    else:
        yield f"{head}  {next(_lines(value, '', path, hidden))}"


def _name(name: str) -> str:
    """Of a member; in quotes unless it is a plain word."""
    return name if _PLAIN_NAME.fullmatch(name) else text_of(name)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
