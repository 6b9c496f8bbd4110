"""The trace that a call belongs to, by its headers (W3C Trace Context), and whether the call is sampled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from random import random

Header = tuple[str, str | bytes]

TRACESTATE_LENGTH_MAX = 512

_HEADERS = frozenset({"traceparent", "tracestate"})
# ff and ids of zeros are invalid; a version after 00 may go on behind the flags.
_TRACEPARENT = re.compile(
    r"(?!ff|00.{53}.)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
_FLAGS = slice(53, 55)
_SAMPLED = 1


def incoming_trace(metadata: Iterable[Header]) -> dict[str, str]:
    """The headers of the trace that the caller is in; empty if there is none or it is not well-formed."""
    # Of every call: by index, which is quicker for named tuples than to unpack them.
    found = {header[0]: str(header[1]) for header in metadata if header[0] in _HEADERS}
    if not found:
        return found
    parent = found.get("traceparent", "")
    if not _TRACEPARENT.fullmatch(parent):
        return {}
    # What a later version adds is not ours to hand on.
    found["traceparent"] = f"00{parent[2 : _FLAGS.stop]}"
    if len(found.get("tracestate", "")) > TRACESTATE_LENGTH_MAX:
        del found["tracestate"]
    return found


def is_sampled(trace: Mapping[str, str], ratio: float) -> bool:
    """The caller decides by its flag; for a call outside of any trace the dice do. `trace` is valid or empty."""
    parent = trace.get("traceparent")
    if parent is None:
        return random() < ratio
    return bool(int(parent[_FLAGS], 16) & _SAMPLED)
