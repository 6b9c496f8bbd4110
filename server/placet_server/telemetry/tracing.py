"""The trace that a call belongs to, by its headers (W3C Trace Context), and whether the call is sampled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import random

TRACESTATE_LENGTH_MAX = 512

# ff and ids of zeros are invalid; a version after 00 may go on behind the flags.
_TRACEPARENT = re.compile(
    r"(?!ff|00.{53}.)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
_FLAGS = slice(53, 55)
_SAMPLED = 1


def incoming_trace(parent: str | None, state: str | None) -> dict[str, str]:
    """The headers of the trace that the caller is in; empty if there is none or it is not well-formed."""
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return {}
    # What a later version adds is not ours to hand on.
    trace = {"traceparent": f"00{parent[2 : _FLAGS.stop]}"}
    if state is not None and len(state) <= TRACESTATE_LENGTH_MAX:
        trace["tracestate"] = state
    return trace


def is_sampled(trace: Mapping[str, str], ratio: float) -> bool:
    """The caller decides by its flag; for a call outside of any trace the dice do. `trace` is valid or empty."""
    parent = trace.get("traceparent")
    if parent is None:
        return random() < ratio
    return bool(int(parent[_FLAGS], 16) & _SAMPLED)
