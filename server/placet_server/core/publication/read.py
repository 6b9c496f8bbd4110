"""Looking at actions.

Everything here answers with the action in whatever state it is, and only within the caller's tenant.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from placet_server.core.publication.family import all_with_effect_so_far, with_effect_so_far
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.waits import all_with_waits, with_family_waits, with_waits
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.errors import FieldViolation, MalformedRequest, NotFound
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.query import PAGE_SIZE_MAX, ActionPage, ActionQuery
from placet_server.store import action as actions


async def get_action(journal: Journal, caller: Caller, action_id: str, *, full: bool) -> Action:
    """Raises NotFound."""
    async with journal.pool.connection() as connection:
        action = await actions.get(connection, caller.tenant, action_id, full=full)
    if action is None:
        raise NotFound(kind="action", name=action_id)
    return await with_waits(journal, action)


async def get_action_by_digests(journal: Journal, caller: Caller, digests: list[bytes], name: str) -> Action:
    """Whoever holds the first of these keys that is held. Raises NotFound."""
    async with journal.pool.connection() as connection:
        found = await actions.get_by_key_digests(connection, digests)
    mine = [action for action in found if action.requester.tenant == caller.tenant]
    if not mine:
        raise NotFound(kind="key", name=name)
    held = next((action for action in mine if action.requester.subject == caller.subject), mine[0])
    return await with_waits(journal, held)


async def as_told(journal: Journal, action: Action) -> Action:
    """With what is known of what it has called: whose yes that waits for, and whether it can have done anything yet."""
    return await with_effect_so_far(journal, await with_family_waits(journal, action))


async def list_actions(journal: Journal, caller: Caller, query: ActionQuery) -> ActionPage:
    """Newest first.

    A page costs a bounded scan, so it may be short, even empty, and still have a next one. Raises
    MalformedRequest for text that no action can have.
    """
    check_text(query.requester, query.queue, *query.capabilities, *query.labels, *query.labels.values())
    floor, ceiling = _bounds(query.action_id_prefix)
    bounded = replace(query, page_size=min(query.page_size, PAGE_SIZE_MAX))
    async with journal.pool.connection() as connection:
        scan = await actions.list_page(
            connection,
            caller.tenant,
            bounded,
            before=query.after_action_id or None,
            floor=floor,
            ceiling=ceiling,
        )
    found = await all_with_waits(journal, caller.tenant, scan.actions)
    found = await all_with_effect_so_far(journal, caller.tenant, found)
    return ActionPage(actions=tuple(found), next_after_action_id=scan.last_scanned or "")


async def wait_action(journal: Journal, caller: Caller, action_id: str, timeout_seconds: float) -> Action:
    """The action once it is terminal or ambiguous, or as it is after so many seconds. Raises NotFound."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_seconds
    while True:
        subscription = journal.hub.subscribe(action_id)
        try:
            action = await get_action(journal, caller, action_id, full=True)
            left = end - loop.time()
            if action.state in TERMINAL or action.state is ActionState.AMBIGUOUS or left <= 0:
                return await as_told(journal, action)
            await journal.hub.wait(action_id, subscription, min(left, journal.poll_seconds))
        finally:
            journal.hub.unsubscribe(action_id, subscription)


async def now_us(journal: Journal) -> int:
    """The store's clock, microseconds since the epoch."""
    async with journal.pool.connection() as connection:
        return await actions.store_time_us(connection, journal.clock.now())


def check_text(*texts: str) -> None:
    """Of a filter. Raises MalformedRequest for what no row can have."""
    if any("\x00" in text for text in texts):
        violation = FieldViolation(field="filter", rule="text", description="has a NUL character")
        raise MalformedRequest(violations=(violation,))


def _bounds(prefix: str) -> tuple[str | None, str | None]:
    """The ids that begin so: the first and the last there can be."""
    if not prefix:
        return None, None
    digits = prefix.replace("-", "")
    return _uuid_text(digits.ljust(32, "0")), _uuid_text(digits.ljust(32, "f"))


def _uuid_text(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
