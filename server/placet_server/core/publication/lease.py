"""Ids: of actions, and of the leases that fence them."""

from __future__ import annotations

import os
import time
import uuid


def new_action_id() -> str:
    """UUID version 7: sorts by time, so that rows of one time lie together."""
    time_ms = f"{time.time_ns() // 1_000_000:012x}"
    random = os.urandom(10).hex()
    return f"{time_ms[:8]}-{time_ms[8:]}-7{random[:3]}-{_VARIANT[random[3]]}{random[4:7]}-{random[7:19]}"


def child_id(parent_id: str, step_path: str) -> str:
    """Of one step of one parent, always the same: UUID version 5 of both, but for the parent's time in front, so that
    lists, which follow ids, show a child beside its parent. Version 8, which tells children from others.
    """
    digits = uuid.uuid5(uuid.UUID(parent_id), step_path).hex
    return f"{parent_id[:13]}-8{digits[13:16]}-{digits[16:20]}-{digits[20:]}"


def new_lease_id() -> str:
    """UUID version 4, random: nobody can guess it, nobody gets it twice."""
    random = os.urandom(16).hex()
    return f"{random[:8]}-{random[8:12]}-4{random[13:16]}-{_VARIANT[random[16]]}{random[17:20]}-{random[20:]}"


# The top two bits of a random digit, set to 10 as RFC 9562 asks.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
