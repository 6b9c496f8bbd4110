"""Invocation message → model, on the hot path."""

from __future__ import annotations

from placet.v1 import action_pb2
from placet_server.model.action import Invocation, OnCallerGone, OnDuplicate
from placet_server.rpc.convert.enumeration import DURABILITY_MEMBER, ON_CALLER_GONE, ON_DUPLICATE
from placet_server.rpc.convert.time import seconds


def invocation_of(message: action_pb2.Invocation) -> Invocation:
    """The message has passed validation."""
    options = message.options
    return Invocation(
        capability=message.capability,
        version=message.version,
        input_json=message.input_json,
        idempotency_key=options.idempotency_key,
        timeout_seconds=seconds(options.timeout) if options.HasField("timeout") else None,
        on_caller_gone=ON_CALLER_GONE.get(options.on_caller_gone, OnCallerGone.CANCEL),
        on_duplicate=ON_DUPLICATE.get(options.on_duplicate, OnDuplicate.ATTACH),
        require_durability=DURABILITY_MEMBER.get(options.require_durability),
        labels=dict(options.labels) if options.labels else {},
    )
