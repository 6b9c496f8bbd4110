"""Sending what is due, and saying how it went.

A delivery is taken under a lease that outlasts its attempt, tried once, and settled: DELIVERED, later again, or DEAD.
Whatever stops in between costs that attempt: the lease ends, and the same delivery goes out again under the same id.
What a receiver answers changes nothing but the delivery's own row.

No target holds up another. Each has a few attempts in flight at most, and one only once half of all slots are taken; a
tenant has half of the slots while there are others. Who was served longest ago is served next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from placet.supervisor import Supervisor
from placet.webhooks import sign
from placet_server.core.publication.callback import bury_without_target
from placet_server.core.publication.journal import Journal
from placet_server.model.callback import (
    ENDINGS,
    Delivery,
    DeliveryState,
    Ending,
    Judged,
    Target,
    Tried,
    cloud_event,
    judge,
)
from placet_server.model.errors import StoreUnavailable
from placet_server.outbound.http import HttpSender, SendFailed, url_of
from placet_server.store import callback as rows
from placet_server.store.callback import Counts, TargetKey

TARGET_SLOTS = 4
# Between two tries to write how an attempt ended, while the store is away.
WRITE_PAUSE_SECONDS = 1.0
LOST = "the last attempt never said how it ended: it may have arrived"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """`source`: that of the CloudEvents, without the tenant. `attempt_seconds`: to look up, to connect, to answer.
    `close_seconds`: what is under way has so long at the end."""

    source: str
    slots_max: int = 64
    target_slots: int = TARGET_SLOTS
    attempt_seconds: float = 10.0
    close_seconds: float = 5.0

    @property
    def lease_seconds(self) -> float:
        """An attempt, its end being written, and a process that stands still for a while."""
        return 2 * self.attempt_seconds + 20.0


class Deliverer:
    """One per process; belongs to its event loop. `observe` is told of each attempt's end."""

    def __init__(
        self,
        journal: Journal,
        sender: HttpSender,
        settings: DeliverySettings,
        *,
        observe: Callable[[Ending], None] = lambda _: None,
    ) -> None:
        self._journal = journal
        self._sender = sender
        self._settings = settings
        self._observe = observe
        self._supervisor = Supervisor()
        self._in_flight: dict[str, Delivery] = {}
        self._served: dict[TargetKey, int] = {}
        self._serial = 0
        self._is_closed = False
        self.counts = Counts()

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def run_once(self) -> bool:
        """Takes what there is room for, and starts on it. True if there may be more at once."""
        known = self._journal.callbacks.targets
        if self._is_closed or not known or self.in_flight >= self._settings.slots_max:
            return False
        begun = time.monotonic()
        async with self._journal.pool.connection() as connection:
            due = await rows.map_due(
                connection,
                list(known),
                each_max=self._settings.target_slots,
                now=self._journal.clock.now(),
            )
            rooms = self._allot(due)
            if not rooms:
                return False
            claimed = await rows.claim(
                connection,
                rooms,
                lease_seconds=self._settings.lease_seconds,
                lost=LOST,
                now=self._journal.clock.now(),
            )
        if self._is_over() or time.monotonic() - begun > self._settings.attempt_seconds / 2:
            # Too late to be done within its lease: it comes back with it.
            return False
        for delivery in claimed:
            self._start(delivery, known[TargetKey(delivery.tenant, delivery.target)])
        return bool(claimed)

    async def bury_without_target(self) -> int:
        """See `callback.bury_without_target`."""
        buried = await bury_without_target(self._journal)
        for _ in range(buried):
            self._observe("dead")
        return buried

    async def count(self) -> None:
        """Of all tenants, whoever sends it, for `counts`."""
        async with self._journal.pool.connection() as connection:
            self.counts = await rows.count_open(connection, None, self._journal.clock.now())

    async def join(self, seconds: float) -> bool:
        """Waits for what is under way; False if some of it still is after so long."""
        return await self._supervisor.join(seconds)

    async def close(self) -> None:
        """Takes nothing more; what is under way has some seconds, and is given back then."""
        self._is_closed = True
        if await self.join(self._settings.close_seconds):
            return
        left = list(self._in_flight.values())
        await self._supervisor.cancel_all()
        try:
            async with self._journal.pool.connection() as connection:
                await rows.give_back(connection, left, now=self._journal.clock.now())
        except StoreUnavailable:
            _log.debug("deliveries under way come due with their leases")

    def _is_over(self) -> bool:
        return self._is_closed

    def _allot(self, due: Mapping[TargetKey, int]) -> dict[TargetKey, int]:
        running = Counter(TargetKey(each.tenant, each.target) for each in self._in_flight.values())
        order = sorted(due, key=lambda key: self._served.get(key, 0))
        tenants = {key.tenant for key in self._journal.callbacks.targets}
        return allot(order, due, running, self._settings, is_alone=len(tenants) == 1)

    def _start(self, delivery: Delivery, target: Target) -> None:
        if delivery.state is not DeliveryState.PENDING:
            _log.warning("delivery %s to %s is dead: %s", delivery.delivery_id, target.name, LOST)
            self._observe("dead")
            return
        self._serial += 1
        self._served[TargetKey(target.tenant, target.name)] = self._serial
        self._in_flight[delivery.delivery_id] = delivery
        task = self._supervisor.start(self._deliver(delivery, target))
        task.add_done_callback(lambda _: self._ended(delivery))

    def _ended(self, delivery: Delivery) -> None:
        if self._in_flight.get(delivery.delivery_id) is delivery:
            del self._in_flight[delivery.delivery_id]
        # There is room, and more of the same target may be due.
        self._journal.callbacks.ring()

    async def _deliver(self, delivery: Delivery, target: Target) -> None:
        until = time.monotonic() + self._settings.lease_seconds
        boundary = self._journal.boundary
        boundary.reached("callback_dispatch_started", target.name)
        tried = await self._try(delivery, target)
        judged = judge(delivery, tried, datetime.now(UTC))
        if judged.state is DeliveryState.DELIVERED:
            boundary.reached("callback_delivered", target.name)
        stands = await self._write(delivery, tried, judged, until)
        if stands is not None:
            self._observe(ENDINGS[stands])
        if stands is DeliveryState.DEAD:
            _log.warning("delivery %s to %s is dead: %s", delivery.delivery_id, target.name, judged.error)

    async def _try(self, delivery: Delivery, target: Target) -> Tried:
        body = cloud_event(delivery, self._settings.source)
        headers = {
            **dict(target.headers),
            "content-type": "application/cloudevents+json; charset=utf-8",
            "user-agent": "placet",
            **sign(target.secrets, delivery.delivery_id, int(time.time()), body),
        }
        try:
            answer = await self._sender.post(
                url_of(target.url), headers.items(), body, seconds=self._settings.attempt_seconds
            )
        except SendFailed as failed:
            return Tried(0, str(failed))
        return Tried(answer.status, retry_after=answer.retry_after)

    async def _write(
        self, delivery: Delivery, tried: Tried, judged: Judged, until: float
    ) -> DeliveryState | None:
        """Again while the store is away, as long as the lease holds. None: somebody else has the delivery now."""
        while True:
            try:
                async with self._journal.pool.connection() as connection:
                    return await rows.settle(
                        connection,
                        delivery,
                        state=judged.state,
                        delay_seconds=judged.delay_seconds,
                        last_status=tried.status,
                        last_error=judged.error,
                        now=self._journal.clock.now(),
                    )
            except StoreUnavailable:
                if time.monotonic() > until:
                    return None
                await asyncio.sleep(WRITE_PAUSE_SECONDS)


def allot(
    order: list[TargetKey],
    due: Mapping[TargetKey, int],
    running: Mapping[TargetKey, int],
    settings: DeliverySettings,
    *,
    is_alone: bool,
) -> dict[TargetKey, int]:
    """How many of each target's are taken now, one after another in turns: `order` says whose turn is first."""
    rooms: Counter[TargetKey] = Counter()
    total = Counter(running)
    of_tenant: Counter[str] = Counter()
    for key, count in total.items():
        of_tenant[key.tenant] += count
    half = max(1, settings.slots_max // 2)
    tenant_max = settings.slots_max if is_alone else half
    for _ in range(settings.target_slots):
        for key in order:
            used = total.total()
            of_target = settings.target_slots if used < half else 1
            if (
                used < settings.slots_max
                and rooms[key] < due[key]
                and total[key] < of_target
                and of_tenant[key.tenant] < tenant_max
            ):
                rooms[key] += 1
                total[key] += 1
                of_tenant[key.tenant] += 1
    return {key: count for key, count in rooms.items() if count}
