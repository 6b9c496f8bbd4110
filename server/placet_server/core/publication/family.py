"""What a COMPOSED action says of its effect: what is known of its steps, those of steps that are COMPOSED themselves
included, as their rows say it. Its end has that written, and not again when a step that was in doubt is known later; of
one that is open it is looked up for who is told of it.
"""

from __future__ import annotations

from collections.abc import Sequence
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


async def with_effect_so_far(journal: Journal, action: Action) -> Action:
    """Before its end."""
    return (await all_with_effect_so_far(journal, action.requester.tenant, [action]))[0]


async def all_with_effect_so_far(journal: Journal, tenant: str, actions: Sequence[Action]) -> list[Action]:
    """The same for many of one tenant, in one look."""
    asked = [a.action_id for a in actions if a.is_open_composed and a.effect_begun]
    if not asked:
        return list(actions)
    async with journal.pool.connection() as connection:
        acted = await lineage.list_acted(connection, tenant, asked)
    idle = frozenset(asked) - acted
    return [a.changed(steps_did_nothing=True) if a.action_id in idle else a for a in actions]


async def with_effect_for_sure(journal: Journal, action: Action, verdict: Verdict) -> Verdict:
    """The same for who holds a result and must not give up."""
    if not is_told_by_steps(action, verdict):
        return verdict

    async def look() -> Verdict:
        async with journal.pool.connection() as connection:
            return await with_effect(connection, action, verdict)

    return await for_sure(journal, look)
