"""An action's events from a cursor: what is stored, then what comes, to the end.

The store is read in one snapshot per round: events of the life first, then lane items. What a handler said
in an attempt goes out before the event that ends that attempt, because the attempt's lane is durable before
that event is written; so an event that closes an attempt is held back until the lane of that attempt is
read to its end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from typing import Any

import orjson

from placet_server.core.publication.cursor import Position, decode, encode
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.read import get_action
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.errors import CursorExpired
from placet_server.model.event import Event, EventType, IdleCheckpoint
from placet_server.model.lifecycle import GOES_ON, TERMINAL
from placet_server.store import event as events
from placet_server.store.event import StoredEvent

PAGE_MAX = 200
PAGE_BYTES_MAX = 2 * 1024 * 1024
_STARTS_ATTEMPT = EventType.ATTEMPT_STARTED.value
# They say themselves how much was said before them.
_SAID_UP_TO = frozenset(
    {
        EventType.PARKED.value,
        EventType.RUN_OPENED.value,
        EventType.TURN_REQUESTED.value,
        EventType.TURN_ANSWERED.value,
        EventType.TURN_FAILED.value,
        EventType.COMPACTED.value,
    }
)
_ENDS = frozenset(
    {
        EventType.SETTLED.value,
        EventType.REQUEUED.value,
        EventType.AMBIGUOUS.value,
        *_SAID_UP_TO,
        _STARTS_ATTEMPT,
    }
)


async def watch_action(
    journal: Journal,
    caller: Caller,
    action_id: str,
    after_cursor: str,
    until: asyncio.Future[Any] | None = None,
) -> AsyncGenerator[Event | IdleCheckpoint, None]:
    """Ends after the newest `settled`, also for who has had it; or, when `until` is done, after what is stored then.

    An older one is followed by `redriven`: an operator had the ended action tried again.

    Raises NotFound, MalformedRequest, CursorExpired.
    """
    position = decode(action_id, after_cursor)
    action = await _action(journal, caller, action_id, full=False)
    if position.sequence > action.sequence or position.attempt > action.attempt:
        raise CursorExpired(oldest_cursor=encode(action_id, Position()))
    known_sequence, loop = action.sequence, asyncio.get_running_loop()
    was_settled = action.state in TERMINAL
    spoke = loop.time()
    replaying, polls = True, False
    while True:
        last_round = until is not None and until.done()
        subscription = journal.hub.subscribe(action_id)
        try:
            batch, more = await _read(
                journal, caller.tenant, action_id, position, polls=polls and not last_round
            )
            for stored in batch:
                position = _after(position, stored)
                replayed = replaying and (
                    stored.sequence <= known_sequence
                    if stored.sequence
                    else was_settled or stored.attempt < action.attempt
                )
                yield await _event(journal, caller, action_id, stored, position, replayed)
                spoke = loop.time()
                if stored.type == EventType.SETTLED.value and await _is_newest(
                    journal, caller, action_id, stored, batch
                ):
                    return
            if more:
                continue
            replaying = False
            if last_round or (not batch and was_settled and position.sequence == known_sequence):
                return
            if loop.time() - spoke >= journal.idle_checkpoint_seconds:
                spoke = loop.time()
                yield IdleCheckpoint(action_id=action_id, cursor=encode(action_id, position))
            polls = await _wait(journal, action_id, subscription, until)
        finally:
            journal.hub.unsubscribe(action_id, subscription)


async def _read(
    journal: Journal, tenant: str, action_id: str, position: Position, *, polls: bool
) -> tuple[list[StoredEvent], bool]:
    """What follows the position, in the order in which it is told, and whether there is more to read at once. Read
    together with whoever else stands there; `polls`: no news were heard of.
    """
    key = (tenant, action_id, position)
    if polls and journal.shared.was_quiet(key, journal.poll_seconds / 2):
        return [], False

    async def ask() -> list[StoredEvent]:
        began = time.monotonic()
        async with journal.pool.connection() as connection:
            stored = await events.read(
                connection,
                tenant=tenant,
                action_id=action_id,
                after_sequence=position.sequence,
                after_attempt=position.attempt,
                after_number=position.number,
                count_max=PAGE_MAX,
                bytes_max=PAGE_BYTES_MAX,
            )
        if not stored:
            journal.shared.note_quiet(key, began)
        return stored

    stored = await journal.shared.read(key, ask)
    life = [s for s in stored if s.sequence]
    lane = [s for s in stored if not s.sequence]
    lane_is_whole = len(lane) < PAGE_MAX and sum(_bytes(s.body) for s in lane) < PAGE_BYTES_MAX
    life_is_whole = len(life) < PAGE_MAX
    return _merge(life, lane, life_is_whole, lane_is_whole), not (life_is_whole and lane_is_whole)


async def _is_newest(
    journal: Journal, caller: Caller, action_id: str, settled: StoredEvent, batch: list[StoredEvent]
) -> bool:
    """Nothing has followed it yet. What succeeded is never tried again, so nobody need ask."""
    if any(stored.sequence > settled.sequence for stored in batch):
        return False
    if orjson.loads(settled.body)["kind"] == "SUCCEEDED":
        return True
    action = await _action(journal, caller, action_id, full=False)
    return action.sequence == settled.sequence


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _merge(
    life: list[StoredEvent], lane: list[StoredEvent], life_is_whole: bool, lane_is_whole: bool
) -> list[StoredEvent]:
    """Lane items after the event that begins their attempt, or goes on with it, and before the one that ends it, or
    parks it; such an event only once the lane is read to its end.
    """
    merged: list[StoredEvent] = []
    waiting = list(lane)
    for event in life:
        last = _last_said(event)
        if last is not None:
            said = [item for item in waiting if (item.attempt, item.number) <= last]
            merged += said
            waiting = waiting[len(said) :]
            if not waiting and not lane_is_whole:
                return merged
        merged.append(event)
    return merged + waiting if life_is_whole else merged


def _last_said(event: StoredEvent) -> tuple[int, float] | None:
    """Up to which attempt and number everything was said before it. None: it says nothing of that."""
    if event.type not in _ENDS:
        return None
    body = orjson.loads(event.body)
    attempt: int = body["attempt"]
    if event.type in _SAID_UP_TO or body.get("cause") in GOES_ON:
        # Who is woken says nothing between.
        return (attempt, body["lane_number"]) if "lane_number" in body else None
    return (attempt - 1 if event.type == _STARTS_ATTEMPT else attempt), math.inf


def _after(position: Position, stored: StoredEvent) -> Position:
    if stored.sequence:
        return Position(stored.sequence, position.attempt, position.number)
    return Position(position.sequence, stored.attempt, stored.number)


async def _event(
    journal: Journal, caller: Caller, action_id: str, stored: StoredEvent, position: Position, replayed: bool
) -> Event:
    body = body_of(stored.type, stored.create_time_us, stored.body)
    if stored.type == EventType.SETTLED.value and body["kind"] == "SUCCEEDED":
        action = await _action(journal, caller, action_id, full=True)
        body["output_json"] = action.output_json
    return Event(
        action_id=action_id,
        type=EventType(stored.type),
        cursor=encode(action_id, position),
        create_time_us=stored.create_time_us,
        sequence=stored.sequence,
        attempt=stored.attempt or body.get("attempt", 0),
        number=stored.number,
        replayed=replayed,
        body=body,
    )


async def _action(journal: Journal, caller: Caller, action_id: str, *, full: bool) -> Action:
    """Read together with whoever else asks."""
    key = (caller.tenant, action_id, full)
    return await journal.shared.read(key, lambda: get_action(journal, caller, action_id, full=full))


def body_of(type_: str, create_time_us: int, text: str) -> dict[str, Any]:
    """As told: with what follows from what is stored."""
    body: dict[str, Any] = orjson.loads(text)
    if type_ == EventType.REQUEUED.value:
        body["ready_time_us"] = create_time_us + round(body["ready_delay_seconds"] * 1_000_000)
    elif type_ == EventType.WAITING.value:
        body["expire_time_us"] = create_time_us + body["ttl_seconds"] * 1_000_000
    return body


async def _wait(
    journal: Journal, action_id: str, subscription: asyncio.Future[None], until: asyncio.Future[Any] | None
) -> bool:
    """Whether nothing was heard of in that time."""
    if until is None:
        await journal.hub.wait(action_id, subscription, journal.poll_seconds)
        return not subscription.done()
    await asyncio.wait(
        (subscription, until), timeout=journal.poll_seconds, return_when=asyncio.FIRST_COMPLETED
    )
    return not subscription.done()
