"""What a COMPOSED action's end says of its effect: what is known then of its steps, those of steps that are COMPOSED
themselves included, as their rows say it. Not written again when a step that was in doubt is known later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placet_server.core.publication.for_sure import for_sure
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.lifecycle import TERMINAL
from placet_server.store import lineage
from placet_server.store.connection import Connection

if TYPE_CHECKING:
    from placet_server.core.publication.settle import Verdict


def is_told_by_steps(action: Action, verdict: Verdict) -> bool:
    """It is an end of what has, or may have, steps."""
    return action.effect_class == "COMPOSED" and verdict.state in TERMINAL and action.attempt > 0


async def with_effect(connection: Connection, action: Action, verdict: Verdict) -> Verdict:
    if not is_told_by_steps(action, verdict):
        return verdict
    effect = await lineage.find_effect(connection, action.requester.tenant, action.action_id)
    return verdict._replace(effect=effect)


async def with_effect_for_sure(journal: Journal, action: Action, verdict: Verdict) -> Verdict:
    """The same for who holds a result and must not give up."""
    if not is_told_by_steps(action, verdict):
        return verdict

    async def look() -> Verdict:
        async with journal.pool.connection() as connection:
            return await with_effect(connection, action, verdict)

    return await for_sure(journal, look)
