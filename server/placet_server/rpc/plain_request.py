"""The plainest requests, recognized without asking protovalidate, which costs more than all other layers together.

A request that is plain by these few comparisons breaks no rule of the contract; one that is not plain may be right all
the same, and protovalidate decides. `tests/rpc/test_plain_request_breaks_a_rule.py` proves the first half.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from placet.v1 import runtime_service_pb2 as pb

CAPABILITY_LENGTH_MAX = 128
VERSION_LENGTH_MAX = 32
# No character has more than four bytes.
INPUT_LENGTH_MAX = 16 * 2**20 // 4
KEY_LENGTH_MAX = 256
PRIORITY_MAX = 9
QUEUE = re.compile(r"([a-z][a-z0-9_-]{0,63})?")


def is_plain(request: Any) -> bool:
    """For requests with an `invocation`."""
    invocation = request.invocation
    options = invocation.options
    key = options.idempotency_key
    return (
        0 < len(invocation.capability) <= CAPABILITY_LENGTH_MAX
        and len(invocation.version) <= VERSION_LENGTH_MAX
        and len(invocation.input_json) <= INPUT_LENGTH_MAX
        and len(key) <= KEY_LENGTH_MAX
        and key.isascii()
        and key.isprintable()
        and key == key.strip(" ")
        and 0 <= options.on_caller_gone <= 2
        and 0 <= options.on_duplicate <= 2
        and 0 <= options.require_durability <= 3
        and not options.session_id
        and 0 <= options.on_busy <= 3
        and not options.labels
        and not options.HasField("timeout")
    )


def is_plain_submission(request: Any) -> bool:
    """For a SubmitRequest that is to run at once."""
    return (
        is_plain(request)
        and 0 <= request.priority <= PRIORITY_MAX
        and QUEUE.fullmatch(request.queue) is not None
        and request.WhichOneof("start") is None
    )


PLAIN: dict[str, Callable[[Any], bool]] = {
    pb.ExecuteRequest.DESCRIPTOR.full_name: is_plain,
    pb.ExecuteStreamRequest.DESCRIPTOR.full_name: is_plain,
    pb.SubmitRequest.DESCRIPTOR.full_name: is_plain_submission,
}
