"""Which trace a step of a run belongs to, whoever runs it, and whenever: the span of a call has an id that follows from
its action's, so that nothing has to be told to whoever takes the step from a queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.store import run as runs

NO_TRACE: Mapping[str, str] = MappingProxyType({})


def span_of(action_id: str) -> int:
    """The id of the span of the call whose action it is."""
    return int.from_bytes(sha256(f"call {action_id}".encode()).digest()[:8]) or 1


async def trace_of_step(journal: Journal, step: Action) -> Mapping[str, str]:
    """W3C Trace Context, below the span of its call; empty if nobody traces its parent, or the store is away."""
    assert step.parent_id is not None
    try:
        async with journal.pool.connection() as connection:
            found = await runs.find_trace(connection, step.requester.tenant, step.parent_id)
    except StoreUnavailable:
        return NO_TRACE
    if found is None:
        return NO_TRACE
    return {"traceparent": f"00-{found.trace_id}-{span_of(step.action_id):016x}-01"}
