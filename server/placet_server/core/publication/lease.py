"""Fresh ids: of actions, and of the leases that fence them."""

from __future__ import annotations

import os
import time


def new_action_id() -> str:
    """UUID version 7: sorts by time, so that rows of one time lie together."""
    return _uuid_text((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10), 7)


def new_lease_id() -> str:
    """Random: nobody can guess it, nobody gets it twice."""
    return _uuid_text(os.urandom(16), 4)


def _uuid_text(raw: bytes, version: int) -> str:
    value = bytearray(raw)
    value[6] = value[6] & 0x0F | version << 4
    value[8] = value[8] & 0x3F | 0x80
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
