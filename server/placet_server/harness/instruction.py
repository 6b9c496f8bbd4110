"""Instructions in which `{{name}}` stands for an argument of the run."""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
RENDERED_BYTES_MAX = 256 * 1024

_PLACE = re.compile(r"\{\{\s*(" + NAME.pattern + r")\s*\}\}")


class InstructionRefused(ValueError):
    """The run cannot open: an argument is missing, or it becomes too long."""


def names_in(template: str) -> frozenset[str]:
    """The arguments that it needs."""
    return frozenset(_PLACE.findall(template))


def render(template: str, arguments: Mapping[str, str]) -> str:
    """In one pass: what an argument says is text, also if it looks like a place. Other braces stay as they are.

    Raises InstructionRefused.
    """
    missing = sorted(names_in(template) - set(arguments))
    if missing:
        raise InstructionRefused(f"the instructions need the argument {missing[0]!r}")
    text = _PLACE.sub(lambda place: arguments[place[1]], template)
    if len(text.encode()) > RENDERED_BYTES_MAX:
        raise InstructionRefused(f"the instructions become longer than {RENDERED_BYTES_MAX} bytes")
    return text
