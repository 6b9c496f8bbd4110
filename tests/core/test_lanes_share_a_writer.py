"""What all handlers say goes through one writer: nobody waits for the store with each word, and one item that the
store rejects is its own attempt's fault."""

from __future__ import annotations

from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet_server.core.admission.execute import execute
from placet_server.core.publication.lane_writer import UNSTORED_ITEMS_MAX, Unstored
from placet_server.core.publication.watch import watch_action
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
        await good.nothing()
        with pytest.raises(Exception, match="out of range"):
            await bad.nothing()
        with pytest.raises(Exception, match="out of range"):
            await bad.room()
        async with kernel.journal.pool.connection() as connection:
            stored = await connection.fetch("select attempt from lane_items order by attempt")
        assert [1, 7, 8] == [row["attempt"] for row in stored]


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
