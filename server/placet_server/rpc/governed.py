"""An RPC that governs is a call of a built-in capability."""

from __future__ import annotations

from typing import Any

from placet_server.core.admission.pipeline import Call
from placet_server.core.governance.govern import govern, invocation_of
from placet_server.core.governance.use import Members
from placet_server.core.kernel import Kernel
from placet_server.model.ending_errors import DeadlineExceeded
from placet_server.model.outcome import OutcomeKind
from placet_server.rpc.call import Rpc
from placet_server.rpc.status import outcome_trailers


async def governed(
    kernel: Kernel,
    rpc: Rpc[Any],
    capability: str,
    members: Members,
    *,
    idempotency_key: str = "",
    again_if_stale: bool = False,
) -> Any:
    """The output of its action, whose id the trailers name. Raises as `govern` does."""
    left: float | None = rpc.context.time_remaining()
    if left is not None and left <= 0:
        raise DeadlineExceeded()
    call = Call(
        caller=rpc.caller,
        invocation=invocation_of(capability, idempotency_key),
        time_left_seconds=left,
        trace=rpc.trace,
    )
    done = await govern(kernel, call, members, again_if_stale=again_if_stale)
    rpc.action_id = done.action_id
    rpc.context.set_trailing_metadata(outcome_trailers(OutcomeKind.SUCCEEDED.value, done.action_id))
    return done.output
