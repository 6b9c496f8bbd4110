"""What a run has asked its model, turn by turn, and what it has spent: for people, not for the run."""

from __future__ import annotations

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
from placet_server.model.entry_text import messages_of, of_text
from placet_server.model.usage import Usage
from placet_server.store import run as runs
from placet_server.store.run import StoredEntry, StoredRun

ENTRIES_READ_MAX = 500
BYTES_READ_MAX = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`answer_time_us` None: there is no answer; `failure` then says of the newest request why. `messages`: what was
    said, in order, each as it is kept.
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
        if entry.type is EntryType.REQUESTED
        and isinstance(body := of_text(entry.type, entry.body), Requested)
    }


def _turn(action_id: str, number: int, entries: list[StoredEntry], told: tuple[Told, ...]) -> Turn:
    bodies = [(entry, of_text(entry.type, entry.body)) for entry in entries]
    requested = [(entry, body) for entry, body in bodies if isinstance(body, Requested)]
    answer = next(((entry, body) for entry, body in bodies if isinstance(body, Answered)), None)
    newest = bodies[-1][1]
    usage = answer[1].usage if answer else None
    return Turn(
        turn=number,
        ordinal=entries[-1].ordinal,
        requests=len(requested),
        purpose=requested[0][1].purpose.value if requested else "",
        request_time_us=requested[0][0].create_time_us if requested else None,
        answer_time_us=answer[0].create_time_us if answer else None,
        usage=usage,
        cost_micros=answer[1].cost_micros if answer else None,
        finish=answer[1].finish if answer else "",
        calls=called(action_id, answer[1], told) if answer else (),
        failure=newest.category.value if isinstance(newest, Failed) else "",
        messages=tuple(message for entry, body in bodies for message in _messages(entry, body)),
    )


def _messages(entry: StoredEntry, body: Body) -> tuple[str, ...]:
    # What stands for others was told in their turns.
    return () if entry.type in (EntryType.OPENED, EntryType.COMPACTED) else messages_of(body)
