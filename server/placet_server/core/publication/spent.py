"""What runs have spent, with what those have that they ask.

A run is charged with what its delegates have spent by the entry that tells its model of them. One that ends before,
spent, failed or cancelled, writes no more: so what they spent is looked for below it, as deep as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from placet_server.core.publication.for_sure import for_sure
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.entry import CALLS_MAX, Answered, EntryType
from placet_server.model.entry_text import of_text
from placet_server.model.usage import Counters
from placet_server.store import run as runs
from placet_server.store.connection import Connection
from placet_server.store.run import StoredRun, Untold


async def spent_of(connection: Connection, tenant: str, action_ids: Sequence[str]) -> dict[str, StoredRun]:
    """By action id; those that have not opened are not in it."""
    known = await runs.map_by_ids(connection, tenant, action_ids)
    calling = [action_id for action_id, each in known.items() if each.is_calling]
    if not calling:
        return known
    untold = await runs.list_untold(connection, tenant, calling, calls_max=CALLS_MAX)
    children = [child.action_id for each in untold for child in each.children]
    below = await spent_of(connection, tenant, children) if children else {}
    for each in untold:
        run = known[each.action_id]
        known[each.action_id] = replace(run, counters=_with(run.counters, each, below))
    return known


async def spent_by_steps(
    journal: Journal, action: Action, parent_id: str, steps: Sequence[str]
) -> dict[str, Counters]:
    """What runs have spent that are steps of an action, by step, all tries of it together, once the store answers."""
    tenant = action.requester.tenant

    async def look() -> dict[str, Counters]:
        async with journal.pool.connection() as connection:
            tries = await runs.list_by_steps(connection, tenant, parent_id, steps)
            known = await spent_of(connection, tenant, [action_id for _, action_id in tries])
        found: dict[str, Counters] = {}
        for step, action_id in tries:
            if action_id in known:
                found[step] = found.get(step, Counters()).with_other(known[action_id].counters)
        return found

    return await for_sure(journal, look)


def _with(counters: Counters, untold: Untold, below: Mapping[str, StoredRun]) -> Counters:
    """What has ended takes the place of its share; whoever has not keeps it, and is charged besides if nobody will."""
    for child in untold.children:
        if child.action_id in below and (child.is_over or untold.is_over):
            counters = counters.with_other(below[child.action_id].counters)
    begun = {child.step for child in untold.children}
    open_ = {child.step for child in untold.children if not child.is_over}
    for text in untold.answers:
        body = of_text(EntryType.ANSWERED, text)
        for call in body.calls if isinstance(body, Answered) else ():
            if call.step and call.step not in open_ and (untold.is_over or call.step in begun):
                counters = replace(
                    counters,
                    reserved_tokens=counters.reserved_tokens - call.reserve.tokens,
                    reserved_micros=counters.reserved_micros - call.reserve.micros,
                )
    return counters
