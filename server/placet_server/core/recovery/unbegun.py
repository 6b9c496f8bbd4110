"""What was lost between its claim and its handler, of actions that people have to say yes to: the start consumes their
approval under the lease, so where that was not done nothing was begun, whatever else the row has to assume.
"""

from __future__ import annotations

from placet_server.core.publication.gated import lock_gated
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lease import new_lease_id
from placet_server.model.action import Action
from placet_server.store import approval as approvals
from placet_server.store import approval_move as moves


async def fence_unbegun(journal: Journal, action: Action) -> Action | None:
    """The lost action with another lease, under which nothing runs: what had it cannot begin any more. None: it may
    have begun, or has moved since it was read.
    """
    if action.approval_id is None or action.effect_unknown:
        return None
    async with journal.pool.tx() as connection:
        approval = await approvals.get(connection, action.requester.tenant, action.approval_id)
        gated = None if approval is None else await lock_gated(connection, journal, approval)
        if gated is None or gated.approval.consume_time_us is not None:
            return None
        lease_id = new_lease_id()
        if not await moves.fence(connection, action, lease_id):
            return None
    return action.changed(lease_id=lease_id, effect_begun=False)
