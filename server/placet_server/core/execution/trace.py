"""Which trace a run belongs to over its stretches, and each step of it, whoever runs that, and whenever: the span of a
call has an id that follows from its action's, so that nothing has to be told to whoever takes the step from a queue.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.store import run as runs
from placet_server.store.run import RunTrace

_log = logging.getLogger(__name__)

NO_TRACE: Mapping[str, str] = MappingProxyType({})


def span_of(action_id: str) -> int:
    """The id of the span of the call whose action it is."""
    return int.from_bytes(sha256(f"call {action_id}".encode()).digest()[:8]) or 1


async def trace_of_run(journal: Journal, tenant: str, action_id: str) -> RunTrace | None:
    """None: nobody traces it, or the store is away."""
    try:
        async with journal.pool.connection() as connection:
            return await runs.find_trace(connection, tenant, action_id)
    except StoreUnavailable:
        return None


async def keep_trace(journal: Journal, run: Action, trace: RunTrace) -> None:
    """For its steps, and for its next stretch; not if the store is away."""
    assert run.lease_id is not None, "what runs has a lease"
    try:
        async with journal.pool.connection() as connection:
            await runs.set_trace(
                connection, run.requester.tenant, run.action_id, trace, lease_id=run.lease_id
            )
    except StoreUnavailable:
        _log.warning("the trace of a run is not kept", extra={"action_id": run.action_id})


async def trace_of_step(journal: Journal, step: Action) -> Mapping[str, str]:
    """W3C Trace Context, below the span of its call; empty if nobody traces its parent, or the store is away."""
    assert step.parent_id is not None
    found = await trace_of_run(journal, step.requester.tenant, step.parent_id)
    if found is None:
        return NO_TRACE
    return {"traceparent": f"00-{found.trace_id}-{span_of(step.action_id):016x}-01"}
