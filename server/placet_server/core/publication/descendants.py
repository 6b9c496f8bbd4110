"""The lives of an action and of all that it has called, in the order of the feed, until its own end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from placet_server.core.publication.feed import watch_events
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import get_action
from placet_server.model.caller import Caller
from placet_server.model.errors import FieldViolation, MalformedRequest
from placet_server.model.event import Event, IdleCheckpoint
from placet_server.model.lifecycle import TERMINAL
from placet_server.model.query import FeedFilter
from placet_server.store import feed
from placet_server.store.feed import FeedPosition


async def watch_descendants(
    journal: Journal, caller: Caller, root_id: str, after_cursor: str
) -> AsyncGenerator[Event | IdleCheckpoint, None]:
    """Begins with the root's admission. Ends once its newest `settled` is told, also for who has had it.

    Raises NotFound, MalformedRequest, CursorExpired."""
    root = await get_action(journal, caller, root_id, full=False)
    if root.parent_id is not None:
        violation = FieldViolation(
            field="descendants", rule="root", description=f"it has a parent; watch its root {root.root_id}"
        )
        raise MalformedRequest(violations=(violation,))

    first = await _place(journal, caller, root_id, 1)
    start = None if first is None else FeedPosition(first.epoch, first.xid)

    async def ends(position: FeedPosition) -> bool:
        action = await get_action(journal, caller, root_id, full=False)
        if action.state not in TERMINAL:
            return False
        last = await _place(journal, caller, root_id, action.sequence)
        return last is None or last <= position

    told = watch_events(journal, caller, after_cursor, FeedFilter(root_id=root_id), start=start, ends=ends)
    async with aclosing(told) as items:
        async for item in items:
            yield item


async def _place(journal: Journal, caller: Caller, action_id: str, sequence: int) -> FeedPosition | None:
    async with journal.pool.connection() as connection:
        return await feed.find_place(connection, caller.tenant, action_id, sequence)
