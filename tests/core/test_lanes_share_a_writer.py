"""What all handlers say goes through one writer: nobody waits for the store with each word, and one item that the
store rejects is its own attempt's fault."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet_server.core.admission.execute import execute
from placet_server.core.publication.lane_writer import UNSTORED_ITEMS_MAX, LaneWriter, Unstored
from placet_server.core.publication.watch import watch_action
from placet_server.model.errors import StoreUnavailable
from placet_server.model.event import Event, EventType
from placet_server.model.lifecycle import ActionState
from placet_server.store.event import LaneItem
from tests.core.kernels import ALICE, call_of, open_kernel
from tests.postgres import Database

app = App("lanes")
CHUNKS = 3 * UNSTORED_ITEMS_MAX


@app.tool("lanes.talk", effect="read")
async def talk(chunks: int, context: Context) -> int:
    for number in range(chunks):
        await context.chunk({"number": number})
    return chunks


async def test_more_than_may_be_unstored_comes_whole_and_in_order(database: Database) -> None:
    async with open_kernel(database.dsn, app) as kernel:
        executed = await execute(kernel, call_of("lanes.talk", {"chunks": CHUNKS}))
        assert ActionState.SUCCEEDED is executed.action.state
        events = [event async for event in watch_action(kernel.journal, ALICE, executed.action.action_id, "")]
        said = [
            event.body["json"]
            for event in events
            if isinstance(event, Event) and event.type is EventType.CHUNK
        ]
        assert [f'{{"number":{number}}}' for number in range(CHUNKS)] == said


async def test_an_item_that_the_store_rejects_is_the_fault_of_its_attempt_alone(database: Database) -> None:
    async with open_kernel(database.dsn, app) as kernel:
        executed = await execute(kernel, call_of("lanes.talk", {"chunks": 1}))
        good, bad = Unstored(), Unstored()
        beyond_integer = 2**40
        for attempt, of in ((7, good), (beyond_integer, bad), (8, good)):
            kernel.journal.lanes.say(_item(executed.action, attempt), of)
        await kernel.journal.lanes.nothing(good)
        with pytest.raises(Exception, match="out of range"):
            await kernel.journal.lanes.nothing(bad)
        with pytest.raises(Exception, match="out of range"):
            await kernel.journal.lanes.room(bad)
        async with kernel.journal.pool.connection() as connection:
            stored = await connection.fetch("select attempt from lane_items order by attempt")
        assert [1, 7, 8] == [row["attempt"] for row in stored]


async def test_nobody_waits_for_a_writer_that_has_ended(database: Database) -> None:
    async with open_kernel(database.dsn, app) as kernel:
        executed = await execute(kernel, call_of("lanes.talk", {"chunks": 1}))
        journal = kernel.journal
    # The kernel has crashed: nothing stores any more.
    of = Unstored()
    lanes = LaneWriter(pool=journal.pool, hub=journal.hub, clock=journal.clock)
    for attempt in range(UNSTORED_ITEMS_MAX):
        lanes.say(_item(executed.action, attempt), of)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = [group.create_task(_fault_of(wait(of))) for wait in (lanes.room, lanes.nothing)]
        running = group.create_task(lanes.run())
        await asyncio.sleep(0)
        running.cancel()
    assert 2 * ["StoreUnavailable"] == [type(task.result()).__name__ for task in waiting]
    assert "StoreUnavailable" == type(await _fault_of(lanes.room(Unstored()))).__name__


async def test_all_attempts_together_say_no_more_than_a_process_may_hold(database: Database) -> None:
    async with open_kernel(database.dsn, app) as kernel:
        executed = await execute(kernel, call_of("lanes.talk", {"chunks": 1}))
        journal = kernel.journal
        lanes = LaneWriter(pool=journal.pool, hub=journal.hub, clock=journal.clock, bytes_max=20)
        first, second = Unstored(), Unstored()
        for attempt in (7, 8):
            await lanes.room(first)
            lanes.say(_item(executed.action, attempt), first)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(lanes.room(second))
            await asyncio.sleep(0)
            assert not waiting.done()
            running = group.create_task(lanes.run())
            await waiting
            lanes.close()
            await running


async def _fault_of(waiting: Awaitable[None]) -> BaseException | None:
    try:
        await waiting
    except StoreUnavailable as error:
        return error
    return None


def _item(action: Any, attempt: int) -> LaneItem:
    return LaneItem(
        tenant=ALICE.tenant,
        action_id=action.action_id,
        attempt=attempt,
        number=1,
        lease_id=action.lease_id,
        type=EventType.CHUNK.value,
        body='{"text":"x"}',
    )
