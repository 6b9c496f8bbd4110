"""Messages of connectors to what the core knows, and back. Nothing here is believed beyond its bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast
from uuid import UUID

from placet.context import Json
from placet.failure import Category, Effect, Failure
from placet.v1 import connector_service_pb2 as pb
from placet.v1 import outcome_pb2
from placet_server.core.execution.attempt import Attempt
from placet_server.core.execution.invoke import storable
from placet_server.model.manifest import HandlerClaims
from placet_server.rpc.convert.caller import caller_message
from placet_server.rpc.convert.capability import manifest_of
from placet_server.rpc.convert.time import duration, seconds

Handlers = Mapping[tuple[str, str], HandlerClaims]

UNDECLARED_CODE = "undeclared_error"
_EFFECTS: dict[int, Effect] = {
    outcome_pb2.EFFECT_STATE_NOT_DONE: "not_done",
    outcome_pb2.EFFECT_STATE_DONE: "done",
}
_CATEGORIES: dict[int, Category] = {
    outcome_pb2.FAILURE_CATEGORY_INVALID: "invalid",
    outcome_pb2.FAILURE_CATEGORY_NOT_FOUND: "not_found",
    outcome_pb2.FAILURE_CATEGORY_CONFLICT: "conflict",
    outcome_pb2.FAILURE_CATEGORY_FORBIDDEN: "forbidden",
    outcome_pb2.FAILURE_CATEGORY_RATE_LIMITED: "rate_limited",
    outcome_pb2.FAILURE_CATEGORY_TEMPORARY: "temporary",
}


class UndeclaredError(Exception):
    """What the author's code raised there; its own process has logged it."""


def read_description(answer: pb.DescribeResponse) -> tuple[dict[tuple[str, str], str], Handlers]:
    """Contract digests, and what the handlers can do. Raises ValueError, PlacetError."""
    UUID(answer.boot_id)
    lookups = set(answer.lookups)
    digests, handlers = {}, {}
    for capability in manifest_of(answer.manifest).capabilities:
        identity = (capability.name, capability.version)
        contract = capability.contract
        digests[identity] = capability.contract_digest
        handlers[identity] = HandlerClaims(
            cancellable=contract.cancellable,
            streaming=contract.streaming,
            effect_marked=contract.effect_marked,
            lookup=f"{capability.name}@{capability.version}" in lookups,
        )
    return digests, handlers


def start_frame(attempt: Attempt, *, boot_id: str, token: str) -> pb.InvokeRequest:
    action, work = attempt.action, attempt.run.work
    credential = work.caller.credential
    start = pb.InvokeStart(
        action_id=action.action_id,
        attempt=action.attempt,
        capability=action.capability,
        version=action.version,
        contract_digest=action.contract_digest,
        input_json=work.input_json,
        effect_key=attempt.effect_key,
        time_left=duration(attempt.time_left()),
        caller=caller_message(work.caller),
        credential_handle="" if credential is None else credential.handle,
        invocation_token=token,
        provider_operation=action.provider_operation or "",
        provider_cursor_json=action.provider_cursor_json or "",
        trace_context={key: value for key, value in work.trace.items() if len(value) <= 512},
        boot_id=boot_id,
    )
    return pb.InvokeRequest(start=start)


def failure_of(message: pb.InvokeFailure) -> Failure | UndeclaredError:
    if message.code == UNDECLARED_CODE:
        return UndeclaredError(storable(message.message, 4096))
    delay = seconds(message.retry_delay) if message.HasField("retry_delay") else None
    return Failure(
        storable(message.code, 64) or "unnamed",
        storable(message.message, 4096),
        category=_CATEGORIES.get(message.category, "permanent"),
        effect=_EFFECTS.get(message.effect, "unknown"),
        retry_delay=delay,
    )


def chunk_of(message: pb.InvokeChunk) -> Json | bytes:
    """Text, bytes or JSON. Raises ValueError."""
    match message.WhichOneof("data"):
        case "text":
            return message.text
        case "binary":
            return message.binary
        case "json":
            return cast(Json, json.loads(message.json))
        case _:
            raise ValueError("a chunk without data")
