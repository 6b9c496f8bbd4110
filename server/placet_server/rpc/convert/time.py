"""Microseconds and seconds to Timestamp and Duration and back; what is neither by its own definition is refused."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from placet_server.model.errors import MalformedRequest

_NANOS = 1_000_000_000
# The years 1 to 9999.
_EARLIEST_SECONDS = -62_135_596_800
_LATEST_SECONDS = 253_402_300_799


def set_timestamp(stamp: Timestamp, microseconds: int) -> None:
    """Into a field that is there already: cheaper than a message more."""
    stamp.seconds = microseconds // 1_000_000
    stamp.nanos = microseconds % 1_000_000 * 1000


def timestamp(microseconds: int) -> Timestamp:
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def microseconds(stamp: Timestamp) -> int:
    """Raises MalformedRequest."""
    if not (_EARLIEST_SECONDS <= stamp.seconds <= _LATEST_SECONDS and 0 <= stamp.nanos < _NANOS):
        raise MalformedRequest(
            detail="a Timestamp lies within the years 1 to 9999, its nanos from 0 to 999999999"
        )
    return stamp.seconds * 1_000_000 + stamp.nanos // 1000


def duration(seconds: float) -> Duration:
    total = round(seconds * 1_000_000)
    sign = -1 if total < 0 else 1
    return Duration(seconds=sign * (abs(total) // 1_000_000), nanos=sign * (abs(total) % 1_000_000 * 1000))


def seconds(span: Duration) -> float:
    """Raises MalformedRequest."""
    if not -_NANOS < span.nanos < _NANOS or span.seconds * span.nanos < 0:
        raise MalformedRequest(detail="a Duration has nanos of its own sign and below one second")
    return span.seconds + span.nanos / 1e9
