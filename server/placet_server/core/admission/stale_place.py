"""Places in line that say something else than their actions, put right by whoever finds them.

Of what may not be begun any more, which is closed; of what does not wait, which are forgotten; and of what is not due,
which are set back.
"""

from __future__ import annotations

from collections.abc import Sequence

from placet_server.core.execution.cancel import close_with_family
from placet_server.core.execution.judgement import close_verdict
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import now_us
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store import queue


async def put_right(journal: Journal, stale: Sequence[tuple[str, str]]) -> int:
    """How many were, each of a tenant and an action. Raises StoreUnavailable."""
    now, righted = await now_us(journal), 0
    orphans, early = [], []
    for tenant, action_id in stale:
        async with journal.pool.connection() as connection:
            action = await actions.get(connection, tenant, action_id, full=False)
        if action is None or action.state is not ActionState.QUEUED:
            orphans.append((tenant, action_id))
        elif (verdict := close_verdict(action, now)) is not None:
            righted += await close_with_family(journal, action, verdict)
        else:
            early.append((tenant, action_id))
    async with journal.pool.connection() as connection:
        if orphans:
            righted += await queue.drop_orphans(connection, orphans)
        if early:
            righted += await queue.set_back(connection, early, journal.clock.now())
    return righted
