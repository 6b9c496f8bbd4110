"""Sessions as they stand, and whose turn it is.

Whatever ends a run frees its session by that alone: 0034_sessions.sql. Who has committed the end looks here for a run
that waits for its turn; what a look cannot do, because the store is away or the process ends, the sweep does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import orjson

from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.contract import EffectClass
from placet_server.model.errors import NotFound, StoreUnavailable
from placet_server.model.lifecycle import SESSION
from placet_server.model.line import Line
from placet_server.model.query import PAGE_SIZE_MAX
from placet_server.model.session import Session, SessionPlace
from placet_server.store import session as sessions
from placet_server.store import session_run as session_runs
from placet_server.store.action import ID_MAX, request_cancel_all
from placet_server.store.connection import Connection
from placet_server.store.session import Locked
from placet_server.store.session_run import Passed, Said

_log = logging.getLogger(__name__)

CLOSED = "its session was closed"
BATCH_MAX = 200
# So many sessions that fail, and the sweep leaves the rest: the store is away, and others have to be closed in time.
FAILED_MAX = 3
BYTES_READ_MAX = 3 * 2**20
_TURN = orjson.dumps({"attempt": 0, "cause": SESSION, "ready_delay_seconds": 0.0}).decode()


async def get_session(journal: Journal, caller: Caller, session_id: str) -> Session:
    """Raises NotFound, also for another's."""
    async with journal.pool.connection() as connection:
        found = await sessions.get(connection, caller.tenant, caller.subject, session_id, journal.clock.now())
    if found is None:
        raise NotFound(kind="session", name=session_id)
    return found


async def list_sessions(
    journal: Journal, caller: Caller, *, before: str = "", page_size: int
) -> list[Session]:
    """The caller's own, newest first."""
    async with journal.pool.connection() as connection:
        return await sessions.list_page(
            connection,
            caller.tenant,
            caller.subject,
            before=before or ID_MAX,
            page_size=min(page_size, PAGE_SIZE_MAX),
            now=journal.clock.now(),
        )


class SaidPage(NamedTuple):
    """`next_after`: where to go on; None: there is no more."""

    said: list[Said]
    next_after: tuple[int, int] | None


async def list_said(
    journal: Journal, caller: Caller, session_id: str, *, after: tuple[int, int], page_size: int
) -> SaidPage:
    """In the order of the conversation. Raises NotFound."""
    await get_session(journal, caller, session_id)
    async with journal.pool.connection() as connection:
        found = await session_runs.list_said(
            connection,
            caller.tenant,
            session_id,
            after=after,
            count_max=page_size + 1,
            bytes_max=BYTES_READ_MAX,
        )
        is_last = len(found) <= page_size and (
            not found or not await _has_more(connection, caller, session_id, found[-1])
        )
    page = found[:page_size]
    return SaidPage(page, None if is_last else (page[-1].number, page[-1].ordinal))


async def _has_more(connection: Connection, caller: Caller, session_id: str, last: Said) -> bool:
    """What was too much for one look."""
    more = await session_runs.list_said(
        connection,
        caller.tenant,
        session_id,
        after=(last.number, last.ordinal),
        count_max=1,
        bytes_max=1,
    )
    return bool(more)


async def map_places(journal: Journal, tenant: str, actions: Iterable[Action]) -> dict[str, SessionPlace]:
    """Which runs of sessions those of them are that can be; of others the store is not asked."""
    ids = [action.action_id for action in actions if action.effect_class == EffectClass.COMPOSED]
    if not ids:
        return {}
    async with journal.pool.connection() as connection:
        return await session_runs.map_places(connection, tenant, ids)


async def pass_turn_after(journal: Journal, action: Action) -> None:
    """After the commit that has ended it: if its session's next run waits, the turn is that one's."""
    if action.effect_class != EffectClass.COMPOSED or action.parent_id is not None:
        return
    journal.boundary.reached("session_freed", action.capability)
    try:
        async with journal.pool.connection() as connection:
            passed = await session_runs.find_passed(connection, action.requester.tenant, action.action_id)
        if passed is not None:
            await pass_turn(journal, passed)
    except StoreUnavailable:
        return


async def sweep_sessions(journal: Journal) -> bool:
    """One bounded batch of those in which nobody has passed the turn on. True: there may be more. Every process does
    this, so what somebody else is at is left to him, and what cannot be done now, until the next time.
    """
    async with journal.pool.connection() as connection:
        passed = await session_runs.list_passed(connection, count_max=BATCH_MAX)
    count = failed = 0
    for each in passed:
        try:
            count += await pass_turn(journal, each, waits=False)
        except StoreUnavailable as error:
            _log.warning("session %s: its turn is not passed on: %s", each.session_id, error)
            failed += 1
            if failed == FAILED_MAX:
                break
    return count == BATCH_MAX


async def pass_turn(journal: Journal, session: Passed, *, waits: bool = True) -> bool:
    """To the first that waits, unless the one before it is not over. In a session that was closed it is nobody's, and
    none waits any more. `waits`: for who has locked it. True: it is done. Raises StoreUnavailable.
    """
    now = journal.clock.now()
    async with journal.pool.tx() as connection:
        if waits:
            locked = await sessions.lock(connection, *session, subject=None, now=now)
        else:
            locked = await sessions.lock_free(connection, *session, now)
        if locked is None:
            return False
        active = locked.active_action_id
        if not locked.is_open:
            moved = await _give_up(connection, session, locked, now)
        elif active is None or await session_runs.is_over(connection, session.tenant, active):
            moved = await _release_first(connection, session, now)
        else:
            return False
    for each in moved:
        journal.hub.publish(each.action_id)
        journal.doorbell.ring(each.line)
    return True


class _Moved(NamedTuple):
    action_id: str
    line: Line


async def _release_first(connection: Connection, session: Passed, now: datetime | None) -> list[_Moved]:
    """Of those that wait, passing over whoever does not any more."""
    while (waiting := await session_runs.next_waiting(connection, *session)) is not None:
        line = await session_runs.release(connection, *session, waiting, event_body=_TURN, now=now)
        if line is not None:
            return [_Moved(waiting.action_id, line)]
    return []


async def _give_up(
    connection: Connection, session: Passed, locked: Locked, now: datetime | None
) -> list[_Moved]:
    """All that wait are asked to stop, as whoever has closed the session may not have come to that, and get places in
    line in which nobody begins them.
    """
    body = orjson.dumps({"reason": CLOSED, "requester": locked.subject}, option=orjson.OPT_SORT_KEYS).decode()
    waiting_ids = await session_runs.list_open(connection, *session, before=locked.run_count + 1)
    await request_cancel_all(
        connection, tenant=session.tenant, action_ids=waiting_ids, event_body=body, now=now
    )
    moved = []
    while (waiting := await session_runs.next_waiting(connection, *session)) is not None:
        line = await session_runs.release(connection, *session, waiting, event_body=_TURN, now=now)
        if line is not None:
            moved.append(_Moved(waiting.action_id, line))
    return moved
