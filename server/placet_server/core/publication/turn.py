"""What a run has asked its model, turn by turn, and what it has spent: for people, not for the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from placet_server.core.publication.called import Called, called
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.spent import spent_of
from placet_server.model.action import Action
from placet_server.model.contract import EffectClass
from placet_server.model.entry import Answered, Body, EntryType, Failed, Requested, Told
from placet_server.model.entry_text import MEMORY_BROKEN, EntryRefused, messages_of, of_text
from placet_server.model.usage import Usage
from placet_server.store import run as runs
from placet_server.store.run import StoredEntry, StoredRun

_log = logging.getLogger(__name__)

ENTRIES_READ_MAX = 500
BYTES_READ_MAX = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`answer_time_us` None: there is no answer; `failure` then says of the newest request why. `messages`: what was
    said, in order, each as it is kept. `problem`: why not all of it is told; empty: it is.
    """

    turn: int
    ordinal: int
    requests: int = 0
    purpose: str = ""
    request_time_us: int | None = None
    answer_time_us: int | None = None
    usage: Usage | None = None
    cost_micros: int | None = None
    finish: str = ""
    calls: tuple[Called, ...] = ()
    failure: str = ""
    problem: str = ""
    messages: tuple[str, ...] = field(default=(), repr=False)


class TurnPage(NamedTuple):
    """`next_after`: the ordinal to go on after; 0: there is no more."""

    turns: tuple[Turn, ...]
    next_after: int


async def list_turns(journal: Journal, action: Action, *, after: int, page_size: int) -> TurnPage:
    """After the entry of this ordinal. Empty for what is no run, or has not opened."""
    tenant, action_id = action.requester.tenant, action.action_id
    async with journal.pool.connection() as connection:
        known = await runs.map_by_ids(connection, tenant, [action_id])
        if action_id not in known:
            return TurnPage((), 0)
        entries = await runs.list_entries(
            connection,
            tenant,
            action_id,
            after_ordinal=after,
            count_max=ENTRIES_READ_MAX,
            bytes_max=BYTES_READ_MAX,
        )
    groups = [(turn, list(group)) for turn, group in groupby(entries, key=lambda entry: entry.turn)]
    is_all = not entries or entries[-1].ordinal >= known[action_id].ordinal
    if not is_all and len(groups) > 1:
        # It may go on beyond what was read.
        groups.pop()
    found = [(turn, group) for turn, group in groups if turn > 0]
    page = found[:page_size]
    is_last = is_all and len(page) == len(found)
    last = (page or groups)[-1][1][-1].ordinal if groups else 0
    told = _told_after(entries)
    turns = tuple(_turn(action_id, turn, group, told.get(group[-1].ordinal, ())) for turn, group in page)
    return TurnPage(turns, 0 if is_last else last)


async def map_runs(journal: Journal, tenant: str, actions: Iterable[Action]) -> dict[str, StoredRun]:
    """What those of them that are runs of agents have spent, by their ids; of others the store is not asked."""
    ids = [action.action_id for action in actions if action.effect_class == EffectClass.COMPOSED]
    if not ids:
        return {}
    async with journal.pool.connection() as connection:
        return await spent_of(connection, tenant, ids)


def _told_after(entries: list[StoredEntry]) -> dict[int, tuple[Told, ...]]:
    """By the ordinal of the entry before it: what each request tells of the calls of the answer before."""
    return {
        entry.ordinal - 1: body.results
        for entry in entries
        if entry.type is EntryType.REQUESTED and isinstance(body := _body(entry), Requested)
    }


def _turn(action_id: str, number: int, entries: list[StoredEntry], told: tuple[Told, ...]) -> Turn:
    bodies = [(entry, _body(entry)) for entry in entries]
    requests = [entry for entry in entries if entry.type is EntryType.REQUESTED]
    purpose = next((body.purpose.value for _, body in bodies if isinstance(body, Requested)), "")
    answer_time_us = next((e.create_time_us for e in entries if e.type is EntryType.ANSWERED), None)
    answer = next((body for _, body in bodies if isinstance(body, Answered)), None)
    newest = bodies[-1][1]
    is_whole = all(body is not None for _, body in bodies)
    if not is_whole:
        _log.error(
            "turn %d of run %s cannot be told whole", number, action_id, extra={"action_id": action_id}
        )
    return Turn(
        turn=number,
        ordinal=entries[-1].ordinal,
        requests=len(requests),
        purpose=purpose,
        request_time_us=requests[0].create_time_us if requests else None,
        answer_time_us=answer_time_us,
        usage=answer.usage if answer else None,
        cost_micros=answer.cost_micros if answer else None,
        finish=answer.finish if answer else "",
        calls=called(action_id, answer, told) if answer else (),
        failure=newest.category.value if isinstance(newest, Failed) else "",
        problem="" if is_whole else MEMORY_BROKEN,
        messages=tuple(m for entry, body in bodies if body is not None for m in _messages(entry, body)),
    )


def _body(entry: StoredEntry) -> Body | None:
    """None: it is not in the store as it was written, or a later release has written it."""
    try:
        return of_text(entry.type, entry.body)
    except EntryRefused:
        return None


def _messages(entry: StoredEntry, body: Body) -> tuple[str, ...]:
    # What stands for others was told in their turns.
    return () if entry.type in (EntryType.OPENED, EntryType.COMPACTED) else messages_of(body)
