"""Which message a call is, by its metadata."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from placet_server.model.action import Message
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.rpc.call import Rpc

ID_HEADER = "placet-message-id"
TIME_HEADER = "placet-message-time"
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def message_of(rpc: Rpc[Any]) -> Message | None:
    """None for a call that does not say. Raises MalformedRequest unless it says both, each once and well."""
    ids, times = rpc.message_ids, rpc.message_times
    if not ids and not times:
        return None
    if len(ids) != 1 or not _ID.fullmatch(ids[0]):
        raise _malformed(ID_HEADER, "once, 1 to 128 of letters, digits, '.', '_', ':' and '-'")
    if len(times) != 1 or not _TIME.fullmatch(times[0]):
        raise _malformed(TIME_HEADER, "once, as in 2030-01-31T12:00:00Z")
    try:
        time = datetime.fromisoformat(times[0])
    except ValueError:
        raise _malformed(TIME_HEADER, "a time that there is") from None
    return Message(message_id=ids[0], time_us=(time - _EPOCH) // timedelta(microseconds=1))


def check_no_message(rpc: Rpc[Any]) -> None:
    """For a call that would make several actions. Raises MalformedRequest."""
    if rpc.message_ids or rpc.message_times:
        raise _malformed(ID_HEADER, "not with a batch: its items have keys")


def _malformed(name: str, wanted: str) -> MalformedRequest:
    violation = FieldViolation(field=name, rule="metadata", description=f"must be given {wanted}")
    return MalformedRequest(violations=(violation,))
