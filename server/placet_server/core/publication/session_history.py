"""What the runs of a session before one remember, and what became of their calls. They are over, so that is fixed; but
for calls that outlive the run that made them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.entry import EntryRow
from placet_server.model.errors import StoreUnavailable
from placet_server.model.session import SessionPlace
from placet_server.store import action as actions
from placet_server.store import lineage
from placet_server.store import run as runs
from placet_server.store import session_run as session_runs

# More than any model is sent.
BYTES_MAX = 16 * 2**20
# From here on it is summed up, whatever its model takes, so that it does not come to that.
HEAVY_BYTES = BYTES_MAX // 2
RUNS_READ_MAX = 100

T = TypeVar("T")


class PastRun(NamedTuple):
    """What it remembers, in order: its first entry, and all since it was compacted. `is_left_out`: with it, it is too
    much to be told: it is there only for what those after it were told of its calls.
    """

    action_id: str
    entries: list[EntryRow]
    is_left_out: bool = False


async def find_place(journal: Journal, action: Action) -> SessionPlace | None:
    """Which run of which session it is, once the store answers."""

    async def look() -> SessionPlace | None:
        async with journal.pool.connection() as connection:
            found = await session_runs.map_places(connection, action.requester.tenant, [action.action_id])
        return found.get(action.action_id)

    return await _for_sure(journal, look)


async def read_past(
    journal: Journal, tenant: str, session_id: str, through: int, *, bytes_max: int
) -> list[PastRun]:
    """The runs up to a number that remember something, oldest first, from the newest on that stands for all before it,
    or with which they are too much.
    """
    past: list[PastRun] = []
    size, before = 0, through + 1
    while before > 1:
        page = await _for_sure(journal, partial(_page, journal, tenant, session_id, before, bytes_max - size))
        for run, entries in page:
            size += size_of(entries)
            past.append(PastRun(run.action_id, entries, is_left_out=size > bytes_max))
            if run.is_compacted or size > bytes_max:
                return past[::-1]
        before = page[-1][0].number if page else 0
    return past[::-1]


async def read_opened(journal: Journal, tenant: str, session_id: str, through: int) -> EntryRow | None:
    """The first entry of the newest run up to a number that remembers something; None: there is none."""
    return await _for_sure(journal, partial(_opened, journal, tenant, session_id, through + 1))


def size_of(entries: Iterable[EntryRow]) -> int:
    """Of what is read."""
    return sum(len(entry.body) for entry in entries)


async def read_calls(
    journal: Journal, tenant: str, action_id: str, steps: Iterable[str]
) -> dict[str, Action]:
    """The newest tries of these steps of a run as they stand, with their outputs; without those that were never
    made.
    """
    found: dict[str, Action] = {}
    for step in steps:
        action = await _for_sure(journal, partial(_call, journal, tenant, action_id, step))
        if action is not None:
            found[step] = action
    return found


async def _page(
    journal: Journal, tenant: str, session_id: str, before: int, bytes_max: int
) -> list[tuple[session_runs.Before, list[EntryRow]]]:
    """Until the first that stands for all before it, or the first with which it is too much."""
    page: list[tuple[session_runs.Before, list[EntryRow]]] = []
    async with journal.pool.connection() as connection:
        found = await session_runs.list_before(
            connection, tenant, session_id, before=before, count_max=RUNS_READ_MAX
        )
        for run in found:
            remembered = await runs.read_entries(connection, tenant, run.action_id)
            page.append((run, remembered.entries))
            bytes_max -= size_of(remembered.entries)
            if run.is_compacted or bytes_max < 0:
                break
    return page


async def _opened(journal: Journal, tenant: str, session_id: str, before: int) -> EntryRow | None:
    async with journal.pool.connection() as connection:
        found = await session_runs.list_before(connection, tenant, session_id, before=before, count_max=1)
        for run in found:
            (opened,) = await runs.list_entries(
                connection, tenant, run.action_id, after_ordinal=0, count_max=1, bytes_max=1
            )
            return opened
    return None


async def _call(journal: Journal, tenant: str, action_id: str, step: str) -> Action | None:
    async with journal.pool.connection() as connection:
        tried = await lineage.find_step(connection, tenant, action_id, step)
        return (
            None
            if tried is None
            else await actions.get(connection, tenant, tried.action.action_id, full=True)
        )


async def _for_sure(journal: Journal, look: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await look()
        except StoreUnavailable:
            await asyncio.sleep(journal.poll_seconds)
