"""Where a watcher stands in an action's events.

Two positions in one opaque text: the sequence of the last event of the life, and the last lane item as
attempt and number. They advance independently, because a lane item may be committed after a later event of
the life; with one position for both, that item would be skipped."""

from __future__ import annotations

import base64
import binascii
import re
from binascii import b2a_base64
from typing import NamedTuple

from placet_server.model.action import Action
from placet_server.model.errors import FieldViolation, MalformedRequest

_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_LAST_NUMBER = 2**53

_TEXT = re.compile(r"1\.([0-9a-f]{32})\.([0-9]{1,18})\.([0-9]{1,9})\.([0-9]{1,18})")


class Position(NamedTuple):
    """After event `sequence`, and after lane item `number` of `attempt`."""

    sequence: int = 0
    attempt: int = 0
    number: int = 0


def encode(action_id: str, position: Position) -> str:
    return _encoded(action_id, position.sequence, position.attempt, position.number)


def _encoded(action_id: str, sequence: int, attempt: int, number: int) -> str:
    return opaque(f"1.{action_id.replace('-', '')}.{sequence}.{attempt}.{number}".encode())


def opaque(content: bytes) -> str:
    """What base64.urlsafe_b64encode does, without its three calls: every answer has a cursor."""
    return b2a_base64(content, newline=False).translate(_URL_SAFE).rstrip(b"=").decode()


def decode(action_id: str, cursor: str) -> Position:
    """Empty text is the beginning. Raises MalformedRequest for what this action never gave out."""
    if not cursor:
        return Position()
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    found = _TEXT.fullmatch(text)
    if found is None or found[1] != action_id.replace("-", ""):
        violation = FieldViolation(
            field="after_cursor", rule="cursor", description="not a cursor of this action"
        )
        raise MalformedRequest(violations=(violation,))
    return Position(int(found[2]), int(found[3]), int(found[4]))


def cursor_of(action: Action) -> str:
    """After everything that the action's row knows of.

    Lane items of the running attempt are not in the row: they come again.
    """
    attempts_over = action.attempt - 1 if action.attempt else 0
    return _encoded(action.action_id, action.sequence, attempts_over, _LAST_NUMBER)
