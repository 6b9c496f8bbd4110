"""What a handler says while it works: chunks and progress of one attempt, and of a run what its model says and calls,
in order, durable before the attempt settles.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from placet_server.core.publication.for_sure import for_sure
from placet_server.core.publication.journal import Journal
from placet_server.core.publication.lane_writer import Unstored
from placet_server.model.action import Action
from placet_server.model.event import EventType
from placet_server.model.json_text import canonicalize_value
from placet_server.store import event as events
from placet_server.store.event import LaneItem

CHUNK_BYTES_MAX = 256 * 1024
MESSAGE_LENGTH_MAX = 1024
# Of UTF-8 no character has more than four bytes.
DELTA_LENGTH_MAX = CHUNK_BYTES_MAX // 4
# A turn has at most half as many calls, each of which begins once and ends once.
TOOLS_TOLD_MAX = 256
# So long a note waits for what is stored anyway.
HELD_SECONDS = 0.01


class Lane:
    """Belongs to one attempt. `begin`: how many it has said before, if it was parked since."""

    def __init__(
        self, journal: Journal, *, tenant: str, action_id: str, attempt: int, lease_id: str, begin: int = 0
    ) -> None:
        self._writer = journal.lanes
        self._tenant = tenant
        self._action_id = action_id
        self._attempt = attempt
        self._lease_id = lease_id
        self._unstored = Unstored()
        self._number = begin
        self._held: list[LaneItem] = []
        self._release_later: asyncio.TimerHandle | None = None

    @property
    def number(self) -> int:
        """How many were said so far."""
        return self._number

    async def chunk(self, data: Any) -> None:
        """Raises ValueError for what is no JSON, or too large; returns once there is room for more."""
        await self._say(EventType.CHUNK, chunk_body(data))

    async def progress(self, message: str, fraction: float | None) -> None:
        """Raises ValueError for a fraction outside 0 to 1."""
        if fraction is not None and not 0.0 <= fraction <= 1.0:
            raise ValueError(f"fraction is from 0 to 1, not {fraction}")
        body = {"message": message[:MESSAGE_LENGTH_MAX], "fraction": fraction}
        await self._say(EventType.PROGRESS, orjson.dumps(body).decode())

    async def delta(self, turn: int, request: int, kind: Literal["text", "reasoning"], text: str) -> None:
        """Returns once there is room for more."""
        for begin in range(0, len(text), DELTA_LENGTH_MAX):
            body = {"turn": turn, "request": request, kind: text[begin : begin + DELTA_LENGTH_MAX]}
            await self._say(EventType.DELTA, orjson.dumps(body).decode())

    def note(self, type_: EventType, body: Mapping[str, Any]) -> None:
        """Without waiting for room: of what is bounded by itself. It is held back for a moment, as somebody may store
        it with something else.
        """
        self._held.append(self._item(type_, orjson.dumps(body).decode()))
        if self._release_later is None:
            self._release_later = asyncio.get_running_loop().call_later(HELD_SECONDS, self._release)

    async def drain(self) -> None:
        """Everything said is durable, or the lease is lost. Raises what the store said of an item that it rejects."""
        self._release()
        await self._writer.nothing(self._unstored)

    async def drain_but_held(self) -> list[LaneItem]:
        """The same, but for what is held back: that is for who has it now to store."""
        await self._writer.nothing(self._unstored)
        return self._take()

    async def _say(self, type_: EventType, body: str) -> None:
        await self._writer.room(self._unstored)
        self._release()
        self._writer.say(self._item(type_, body), self._unstored)

    def _release(self) -> None:
        for item in self._take():
            self._writer.say(item, self._unstored)

    def _take(self) -> list[LaneItem]:
        if self._release_later is not None:
            self._release_later.cancel()
            self._release_later = None
        held, self._held = self._held, []
        return held

    def _item(self, type_: EventType, body: str) -> LaneItem:
        self._number += 1
        return LaneItem(
            tenant=self._tenant,
            action_id=self._action_id,
            attempt=self._attempt,
            number=self._number,
            lease_id=self._lease_id,
            type=type_.value,
            body=body,
        )


async def said_so_far(journal: Journal, action: Action) -> int:
    """How many an attempt that goes on has said before, once the store answers."""

    async def look() -> int:
        async with journal.pool.connection() as connection:
            return await events.last_lane_number(
                connection, action.requester.tenant, action.action_id, action.attempt
            )

    return await for_sure(journal, look)


async def tools_told(journal: Journal, action: Action) -> set[tuple[EventType, int, int]]:
    """Of which calls of its newest turn a run that goes on has told what before, by turn and call, once the store
    answers.
    """

    async def look() -> list[tuple[str, str]]:
        async with journal.pool.connection() as connection:
            return await events.list_tools_told(
                connection, action.requester.tenant, action.action_id, count_max=TOOLS_TOLD_MAX
            )

    told = await for_sure(journal, look)
    bodies = [(EventType(type_), orjson.loads(body)) for type_, body in told]
    return {(type_, body["turn"], body["call"]) for type_, body in bodies}


def chunk_body(data: Any) -> str:
    """The stored form: {"text": …}, {"base64": …} or {"json": canonical text}.

    Raises ValueError when too large.
    """
    if isinstance(data, str):
        size, body = len(data.encode()), {"text": data}
    elif isinstance(data, bytes):
        size, body = len(data), {"base64": base64.b64encode(data).decode()}
    else:
        text = canonicalize_value(data, bytes_max=CHUNK_BYTES_MAX).text
        size, body = len(text), {"json": text}
    if size > CHUNK_BYTES_MAX:
        raise ValueError(
            f"a chunk has at most {CHUNK_BYTES_MAX} bytes, not {size}; send more and smaller ones"
        )
    return orjson.dumps(body).decode()
