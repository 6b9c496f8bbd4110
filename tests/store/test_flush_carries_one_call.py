"""A busy loop does not keep those waiting who were many enough to share a flush."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from placet_server.store import batch
from placet_server.store.batch import BatchWriter
from placet_server.store.clock import DatabaseClock
from tests.postgres import Database
from tests.store.test_flush_statements_drift_apart import admission, open_boot

# In each of them somebody has something to do; together they are fewer than the writer lingers.
BUSY_SECONDS = 2 * batch.IDLE_PASS_SECONDS
PASSES = 20
assert 2 * PASSES * BUSY_SECONDS < batch.LINGER_SECONDS_MAX


class Clock:
    """By which every pass of the loop is as long as `pass_seconds`."""

    def __init__(self) -> None:
        self.pass_seconds = BUSY_SECONDS
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += self.pass_seconds
        return self._now


async def pass_by() -> None:
    for _ in range(PASSES):
        await asyncio.sleep(0)


async def test_most_of_those_who_took_part_are_enough_and_one_alone_waits_for_idleness(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, boot = await open_boot(database)
    clock = Clock()
    monkeypatch.setattr(batch, "time", SimpleNamespace(monotonic=clock.monotonic))
    sizes: list[int] = []

    async def connect() -> Any:
        return connection

    writer = BatchWriter(
        connect=connect,
        boot_id=boot.boot_id,
        clock=DatabaseClock(),
        observe=lambda items, seconds: sizes.append(items),
    )

    def admit(*numbers: int) -> list[asyncio.Future[Any]]:
        return [writer.admit(admission(each, key_digest=None, idempotency_key=None)) for each in numbers]

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(writer.run())
        # Nobody knows yet how many there are: all that come while the loop is busy.
        await asyncio.gather(*admit(1, 2, 3, 4))
        two = admit(5, 6)
        await pass_by()
        assert [4] == sizes
        assert 3 == writer._enough
        # With a third, these are most of four. A fourth comes too late, and waits for those.
        third = admit(7)
        while writer._queue:  # noqa: ASYNC110
            await asyncio.sleep(0)
        fourth = admit(8)
        await asyncio.gather(*two, *third)
        assert [4, 3] == sizes
        await pass_by()
        assert [4, 3] == sizes
        clock.pass_seconds = 0.0
        await asyncio.gather(*fourth)
        writer.close()
    assert [4, 3, 1] == sizes
    assert 2 == writer._enough
