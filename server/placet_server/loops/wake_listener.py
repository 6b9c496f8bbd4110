"""Wakes and is woken: tells other processes what they wait for, and passes on what they tell.

Whoever waits looks into the store by itself now and then; so a connection that is lost makes news late, and loses none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from placet_server.core.publication.journal import Journal
from placet_server.core.publication.notice import Notice, packed, unpacked
from placet_server.loops.loop import repeat
from placet_server.model.errors import StoreUnavailable
from placet_server.store.connection import Connection
from placet_server.store.notify import PAYLOAD_BYTES_MAX, NoticeChannel

RECONNECT_SECONDS = 0.5
LOOK_SECONDS = 1.0
# What is said within so long goes out together.
GAP_SECONDS = 0.002
# An action that moved before its mover heard that it is waited for: looked at once more.
SECOND_LOOK_SECONDS = 0.02


class WakeListener:
    """`on_cancel` gets the ids of actions that others were asked to stop. `observe`: "sent" or "heard"."""

    def __init__(
        self,
        journal: Journal,
        *,
        connect: Callable[[], Awaitable[Connection]],
        on_cancel: Callable[[str], None],
        observe: Callable[[str], None],
    ) -> None:
        self._journal = journal
        self._relay = journal.relay
        self._connect = connect
        self._on_cancel = on_cancel
        self._observe = observe
        self._is_lost = False

    async def run(self) -> None:
        await repeat("wake_listener", self.step, RECONNECT_SECONDS)

    async def step(self) -> bool:
        """As long as one connection lasts. Raises StoreUnavailable at its end."""
        self._is_lost = False
        channel = await NoticeChannel.open(self._connect, self._hear, self._lose)
        try:
            self._catch_up()
            await self._look_round(channel)
            if self._relay.has_others:
                await self._send(channel, Notice(joined=True))
            look_at = time.monotonic() + LOOK_SECONDS
            while not self._is_lost:
                if time.monotonic() >= look_at:
                    await self._look_round(channel)
                    look_at = time.monotonic() + LOOK_SECONDS
                await self._tell(channel)
                await asyncio.sleep(GAP_SECONDS)
                await self._relay.wait(max(0.0, look_at - time.monotonic()))
        finally:
            channel.close()
        raise StoreUnavailable(detail="the connection of the wake-ups is lost")

    async def _look_round(self, channel: NoticeChannel) -> None:
        self._relay.look_round(await channel.has_others(self._journal.boot_id))

    async def _tell(self, channel: NoticeChannel) -> None:
        """What could not be told stays to be told."""
        notice = self._relay.take()
        try:
            await self._send(channel, notice)
        except StoreUnavailable:
            self._relay.put_back(notice)
            raise

    async def _send(self, channel: NoticeChannel, notice: Notice) -> None:
        payloads = packed(notice, PAYLOAD_BYTES_MAX)
        if not payloads:
            return
        await channel.send(payloads)
        for _ in payloads:
            self._observe("sent")
        if notice.wanted:
            asyncio.get_running_loop().call_later(SECOND_LOOK_SECONDS, self._wake, notice.wanted)

    def _hear(self, payload: str) -> None:
        self._observe("heard")
        notice = unpacked(payload)
        self._relay.meet()
        if notice.joined:
            self._relay.forget_wishes()
        self._relay.note_wanted(notice.wanted)
        for action_id in notice.cancelled:
            self._on_cancel(action_id)
        for line in notice.lines:
            self._journal.doorbell.wake(line)
        self._wake(notice.news)

    def _wake(self, action_ids: Iterable[str]) -> None:
        for action_id in action_ids:
            self._journal.hub.wake(action_id)

    def _catch_up(self) -> None:
        """What was said while nobody listened here."""
        self._journal.hub.wake_all()
        self._journal.doorbell.wake_to_look()

    def _lose(self) -> None:
        self._is_lost = True
        self._relay.stir()
