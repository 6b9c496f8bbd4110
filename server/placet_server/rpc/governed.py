"""An RPC that governs is a call of a built-in capability."""

from __future__ import annotations

from typing import Any

from placet_server.core.admission.pipeline import Call
from placet_server.core.governance.govern import govern, invocation_of
from placet_server.core.governance.use import Members
from placet_server.core.kernel import Kernel
from placet_server.model.outcome import OutcomeKind
from placet_server.rpc.call import Rpc, time_left
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
    call = Call(
        caller=rpc.caller,
        invocation=invocation_of(capability, idempotency_key),
        time_left_seconds=time_left(rpc),
        trace=rpc.trace,
    )
    done = await govern(kernel, call, members, again_if_stale=again_if_stale)
    rpc.action_id = done.action_id
    rpc.context.set_trailing_metadata(outcome_trailers(OutcomeKind.SUCCEEDED.value, done.action_id))
    return done.output
