"""Microseconds and seconds to Timestamp and Duration and back."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def set_timestamp(stamp: Timestamp, microseconds: int) -> None:
    """Into a field that is there already: cheaper than a message more."""
    stamp.seconds = microseconds // 1_000_000
    stamp.nanos = microseconds % 1_000_000 * 1000


def timestamp(microseconds: int) -> Timestamp:
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def microseconds(stamp: Timestamp) -> int:
    return stamp.seconds * 1_000_000 + stamp.nanos // 1000


def duration(seconds: float) -> Duration:
    total = round(seconds * 1_000_000)
    sign = -1 if total < 0 else 1
    return Duration(seconds=sign * (abs(total) // 1_000_000), nanos=sign * (abs(total) % 1_000_000 * 1000))


def seconds(span: Duration) -> float:
    return span.seconds + span.nanos / 1e9
