"""Telling others: a callback becomes rows in the tx of what it tells of, one for each target that wants it, so that
both are there or neither is. Sending is the sender's, by itself (`deliver.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from placet_server.model.callback import Callback, Delivery, DeliveryFilter, Target
from placet_server.model.caller import Caller
from placet_server.model.errors import NotFound
from placet_server.model.query import PAGE_SIZE_MAX
from placet_server.store import callback as rows
from placet_server.store.callback import TargetKey
from placet_server.store.connection import Connection

if TYPE_CHECKING:
    from placet_server.core.publication.journal import Journal

ATTEMPTS_MAX = 12
TARGETLESS_DUE_SECONDS = 3600.0
BURIED_MAX = 500
TARGETLESS = "no server has had such a target for an hour"


class Callbacks:
    """Who is told, as this process knows it, and the wake-up of its sender. Belongs to one event loop."""

    def __init__(self, targets: Sequence[Target] = (), *, attempts_max: int = ATTEMPTS_MAX) -> None:
        self.attempts_max = attempts_max
        self._rung = asyncio.Event()
        self.replace(targets)

    def replace(self, targets: Sequence[Target]) -> None:
        """`targets`: all there are, from now on."""
        self.targets = {TargetKey(target.tenant, target.name): target for target in targets}
        self.ring()

    def wanting(self, callback: Callback) -> list[str]:
        """Names of those who are to be told."""
        return [
            target.name for target in self.targets.values() if target.wants(callback.tenant, callback.type)
        ]

    def ring(self) -> None:
        """There may be something to send: after the commit of what was enqueued."""
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Returns at a ring, or after so long. Has one waiter; rings while nobody waits are kept."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()


async def enqueue(
    callbacks: Callbacks, connection: Connection, callback: Callback, now: datetime | None
) -> None:
    """Within the caller's tx, after the rows that it tells of. Once it is committed, `callbacks.ring()` saves the
    sender's next look."""
    targets = callbacks.wanting(callback)
    if targets:
        await rows.insert(connection, callback, targets, attempts_max=callbacks.attempts_max, now=now)


async def bury_without_target(journal: Journal) -> int:
    """Gives up what nobody could send for an hour, as its target is gone from here. How many there were."""
    async with journal.pool.connection() as connection:
        return await rows.bury_without_target(
            connection,
            list(journal.callbacks.targets),
            due_seconds=TARGETLESS_DUE_SECONDS,
            last_error=TARGETLESS,
            count_max=BURIED_MAX,
            now=journal.clock.now(),
        )


async def get_delivery(journal: Journal, tenant: str | None, delivery_id: str) -> Delivery:
    """With what it tells. `tenant` None: whosever it is. Raises NotFound."""
    async with journal.pool.connection() as connection:
        found = await rows.get(connection, tenant, delivery_id)
    if found is None:
        raise NotFound(kind="delivery", name=delivery_id)
    return found


async def list_deliveries(
    journal: Journal, *, tenant: str | None, matching: DeliveryFilter, page_size: int, before: str = ""
) -> list[Delivery]:
    """Newest first, without what they tell; `before` is the last id of the page before. `tenant` None: of all."""
    size = min(page_size, PAGE_SIZE_MAX)
    async with journal.pool.connection() as connection:
        return await rows.list_page(connection, tenant, matching, before=before or None, page_size=size)


async def redeliver(journal: Journal, caller: Caller, delivery_id: str, *, key: str) -> Delivery:
    """It is sent out again, whatever became of it, with as many attempts as a new one; also one that is PENDING gets
    them, and is tried at once. The same `key` of the same caller does it once. Raises NotFound."""
    if key:
        words = (caller.tenant, caller.subject, delivery_id, key)
        redelivery = hashlib.sha256("\0".join(words).encode()).digest()
    else:
        redelivery = os.urandom(16)
    async with journal.pool.connection() as connection:
        await rows.redeliver(
            connection,
            caller.tenant,
            delivery_id,
            attempts=journal.callbacks.attempts_max,
            redelivery=redelivery,
            redelivered_by=caller.subject,
            now=journal.clock.now(),
        )
    journal.callbacks.ring()
    return await get_delivery(journal, caller.tenant, delivery_id)
