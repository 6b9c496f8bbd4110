"""Instructions in which `{{name}}` stands for an argument of the run."""

from __future__ import annotations

from collections.abc import Mapping

from placet_server.model.agent import ARGUMENT_PLACE, arguments_in

RENDERED_BYTES_MAX = 256 * 1024


class InstructionRefused(ValueError):
    """The run cannot open: an argument is missing, or it becomes too long."""


def render(template: str, arguments: Mapping[str, str]) -> str:
    """In one pass: what an argument says is text, also if it looks like a place. Other braces stay as they are.

    Raises InstructionRefused.
    """
    missing = sorted(arguments_in(template) - set(arguments))
    if missing:
        raise InstructionRefused(f"the instructions need the argument {missing[0]!r}")
    text = ARGUMENT_PLACE.sub(lambda place: arguments[place[1]], template)
    if len(text.encode()) > RENDERED_BYTES_MAX:
        raise InstructionRefused(f"the instructions become longer than {RENDERED_BYTES_MAX} bytes")
    return text
