"""The use case behind every RPC that governs: it ends as the action does."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from placet_server.core.admission.execute import execute
from placet_server.core.admission.key import bind_key
from placet_server.core.admission.pipeline import Call
from placet_server.core.admission.reserve import find_by_key
from placet_server.core.governance.governor import Governor
from placet_server.core.governance.use import Members
from placet_server.core.kernel import Kernel
from placet_server.model.action import Invocation, OnCallerGone
from placet_server.model.caller import Caller
from placet_server.model.contract import PAYLOAD_BYTES_HARD_MAX
from placet_server.model.ending_errors import HandlerFailed
from placet_server.model.errors import StaleDigest
from placet_server.model.json_text import canonicalize_value

# Somebody else is faster only so often.
TRIES_MAX = 8


class Governed(NamedTuple):
    """What was done, and the action that did it."""

    action_id: str
    output: Any


async def govern(kernel: Kernel, call: Call, members: Members, *, again_if_stale: bool = False) -> Governed:
    """The output of the action that `call` names, whose input is `members`.

    Raises what the gates say, ApprovalRequired with the waits, and the typed error that the action ended with.
    `again_if_stale`: the caller does not mind what it replaces, so if that has moved meanwhile it is looked at anew."""
    text = canonicalize_value(members, bytes_max=PAYLOAD_BYTES_HARD_MAX).text
    asked = call._replace(invocation=_with_input(call.invocation, text))
    for tried in range(1, TRIES_MAX + 1):
        try:
            done = await execute(kernel, asked)
            return Governed(done.action.action_id, orjson.loads(done.action.output_json or "null"))
        except HandlerFailed as failed:
            governor = kernel.governor
            error = governor.errors.error_of(failed) if isinstance(governor, Governor) else failed
            if not (again_if_stale and error.reason == StaleDigest.reason) or tried == TRIES_MAX:
                raise error from failed
    raise AssertionError


async def is_known(kernel: Kernel, caller: Caller, capability: str, key: str) -> bool:
    """An action of this caller has the key."""
    found = await kernel.catalog.find(caller.tenant, capability)
    bound = bind_key(found.capability, caller, key)
    return bound is not None and await find_by_key(kernel.journal, bound.digest) is not None


def invocation_of(capability: str, idempotency_key: str = "") -> Invocation:
    """Of a call to `govern`. Once it is asked for it is done, whoever leaves."""
    return Invocation(
        capability=capability,
        input_json="",
        idempotency_key=idempotency_key,
        on_caller_gone=OnCallerGone.DETACH,
    )


def _with_input(invocation: Invocation, text: str) -> Invocation:
    return Invocation(
        capability=invocation.capability,
        input_json=text,
        idempotency_key=invocation.idempotency_key,
        on_caller_gone=invocation.on_caller_gone,
    )
