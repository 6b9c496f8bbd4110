"""What the runs of a session before one remember, and what became of their calls. They are over, so that is fixed; but
for calls that outlive the run that made them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from placet_server.core.publication.for_sure import for_sure
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.entry import EntryRow
from placet_server.model.session import SessionPlace
from placet_server.store import action as actions
from placet_server.store import lineage
from placet_server.store import session_run as session_runs

# More than any model is sent.
BYTES_MAX = 16 * 2**20
# From here on it is summed up, whatever its model takes, so that it does not come to that.
HEAVY_BYTES = BYTES_MAX // 2
# Of one look, which has to be over in the time of one use of a connection.
PAGE_ENTRIES_MAX = 500
PAGE_BYTES_MAX = 2 * 2**20


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

    return await for_sure(journal, look)


async def read_past(
    journal: Journal, tenant: str, session_id: str, through: int, *, bytes_max: int
) -> list[PastRun]:
    """The runs up to a number that remember something, oldest first, from the newest on that stands for all before it,
    or with which they are too much.
    """
    past: list[PastRun] = []
    entries: list[EntryRow] = []
    # Before the first entry of the newest run.
    size, after = 0, (through, 0)
    while page := await for_sure(journal, partial(_page, journal, tenant, session_id, after)):
        for each in page:
            entries.append(each.entry)
            size += size_of([each.entry])
            if not each.is_last:
                continue
            past.append(PastRun(each.action_id, entries, is_left_out=size > bytes_max))
            entries = []
            if each.is_compacted or size > bytes_max:
                return past[::-1]
        after = (page[-1].number, page[-1].entry.ordinal)
    return past[::-1]


async def read_opened(journal: Journal, tenant: str, session_id: str, through: int) -> EntryRow | None:
    """The first entry of the newest run up to a number that remembers something; None: there is none."""
    return await for_sure(journal, partial(_opened, journal, tenant, session_id, through))


def size_of(entries: Iterable[EntryRow]) -> int:
    """Of what is read."""
    return sum(len(entry.body.encode()) for entry in entries)


async def read_calls(
    journal: Journal, tenant: str, action_id: str, steps: Iterable[str]
) -> dict[str, Action]:
    """The newest tries of these steps of a run as they stand, with their outputs; without those that were never
    made.
    """
    found: dict[str, Action] = {}
    for step in steps:
        action = await for_sure(journal, partial(_call, journal, tenant, action_id, step))
        if action is not None:
            found[step] = action
    return found


async def _page(
    journal: Journal, tenant: str, session_id: str, after: tuple[int, int]
) -> list[session_runs.Remembered]:
    async with journal.pool.connection() as connection:
        return await session_runs.list_remembered(
            connection,
            tenant,
            session_id,
            after=after,
            count_max=PAGE_ENTRIES_MAX,
            bytes_max=PAGE_BYTES_MAX,
        )


async def _opened(journal: Journal, tenant: str, session_id: str, through: int) -> EntryRow | None:
    async with journal.pool.connection() as connection:
        found = await session_runs.list_remembered(
            connection, tenant, session_id, after=(through, 0), count_max=1, bytes_max=1
        )
    return found[0].entry if found else None


async def _call(journal: Journal, tenant: str, action_id: str, step: str) -> Action | None:
    async with journal.pool.connection() as connection:
        tried = await lineage.find_step(connection, tenant, action_id, step)
        return (
            None
            if tried is None
            else await actions.get(connection, tenant, tried.action.action_id, full=True)
        )
