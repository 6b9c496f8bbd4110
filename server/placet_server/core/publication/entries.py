"""What a run remembers, written and read back. Each entry has its event, which names the entry's digest and says no
word of what a model was told or has said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import assert_never, cast

import orjson

from placet_server.core.publication.called import called
from placet_server.core.publication.for_sure import for_sure
from placet_server.core.publication.journal import Journal
from placet_server.model.action import Action
from placet_server.model.document import written
from placet_server.model.entry import Answered, Body, Compacted, Entry, Failed, Opened, Requested
from placet_server.model.entry_text import of_text
from placet_server.model.errors import StoreUnavailable
from placet_server.model.event import EventType
from placet_server.model.usage import Counters
from placet_server.store import run as runs
from placet_server.store.batch_item import EntryItem
from placet_server.store.event import LaneItem
from placet_server.store.run import EntryStanding, Remembered

# A provider may say anything; all of it is in the entry.
FINISH_LENGTH_MAX = 64


async def read(journal: Journal, action: Action) -> Remembered:
    """What the run goes on from, once the store answers: the first entry, and all from the newest compaction on."""

    async def look() -> Remembered:
        async with journal.pool.connection() as connection:
            return await runs.read_entries(connection, action.requester.tenant, action.action_id)

    return await for_sure(journal, look)


async def has_run(journal: Journal, action: Action, active_ms: int) -> None:
    """Of a run that ends by its budget, for whoever reads it: what one goes on from follows from events, so nothing
    waits for a store that is away.
    """
    assert action.lease_id is not None, "what runs has a lease"
    with contextlib.suppress(StoreUnavailable):
        async with journal.pool.connection() as connection:
            await runs.set_active(
                connection,
                action.requester.tenant,
                action.action_id,
                lease_id=action.lease_id,
                active_ms=active_ms,
            )


def item_of(
    action: Action,
    entry: Entry,
    counters: Counters,
    *,
    ordinal: int,
    model: str,
    lane_number: int = 0,
    seen: Sequence[str] = (),
    said: Sequence[LaneItem] = (),
) -> EntryItem:
    """What the writer is given. `model`: of the run. `lane_number`: how much it has said before it, `said` included.
    `seen`: children; "" is one that was refused.

    Raises EntryRefused.
    """
    body = of_text(entry.type, entry.body)
    type_, event = _event_of(action, body, model)
    event |= {"attempt": action.attempt, "digest": entry.digest, "lane_number": lane_number}
    item = {
        "tenant": action.requester.tenant,
        "action_id": action.action_id,
        "lease_id": action.lease_id or "",
        "ordinal": ordinal,
        "type": entry.type.value,
        "turn": entry.turn,
        "body": entry.body,
        "model": model,
        "budget": _text(written(body.budget)) if isinstance(body, Opened) else "",
        "seen": [action_id for action_id in seen if action_id],
        "said": said,
        "event_type": type_.value,
        "event_body": _text(event),
    }
    return cast(EntryItem, item | asdict(counters))


async def is_written(journal: Journal, action: Action, item: EntryItem, digest: str) -> bool:
    """Whether an entry that the writer could not append is there all the same, under this very lease: the reply to it
    was lost.
    """

    async def look() -> EntryStanding:
        async with journal.pool.connection() as connection:
            return await runs.find_written(connection, item["tenant"], item["action_id"], item["ordinal"])

    found = await for_sure(journal, look)
    return (found.lease_id, found.digest) == (action.lease_id, digest)


def _event_of(action: Action, body: Body, model: str) -> tuple[EventType, dict[str, object]]:
    match body:
        case Opened():
            return EventType.RUN_OPENED, {"model": body.model, "tools": len(body.tools)}
        case Requested():
            said = {"model": model, "turn": body.turn, "number": body.number, "purpose": body.purpose.value}
            return EventType.TURN_REQUESTED, said
        case Answered():
            return EventType.TURN_ANSWERED, {
                "turn": body.turn,
                "usage": None if body.usage is None else asdict(body.usage),
                "cost_micros": body.cost_micros,
                "finish": body.finish[:FINISH_LENGTH_MAX],
                "calls": [each._asdict() for each in called(action.action_id, body)],
            }
        case Failed():
            return EventType.TURN_FAILED, {
                "turn": body.turn,
                "number": body.number,
                "category": body.category.value,
                "retry_delay_seconds": body.retry_delay_seconds,
            }
        case Compacted():
            return EventType.COMPACTED, {"turns": body.turns}
        case _:
            assert_never(body)


def _text(document: Mapping[str, object]) -> str:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()
