"""Many steps end at once, and many look: their parent is made ready once, and nothing of it is left."""

from __future__ import annotations

import asyncio

import pytest

from placet_server.core.publication import wake
from placet_server.loops.wake_sweeper import WakeSweeper
from placet_server.store import event as events
from tests.core.composed import end, family, park, standing
from tests.core.kernels import QUEUE, claimed, open_kernel, places
from tests.core.parking import told, wakes
from tests.core.workshop import Workshop
from tests.postgres import Database


async def test_many_ends_and_many_looks_make_it_ready_once(database: Database) -> None:
    async with (
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as other,
    ):
        owners = [kernel, other] * 4
        parent, children = await family(kernel, *owners)
        await park(kernel, parent, *children)
        ending = [end(owner, child) for owner, child in zip(owners, children, strict=True)]
        looking = [wake.sweep(each.journal) for each in owners]
        await asyncio.gather(*ending, *looking)
        assert ("QUEUED", "WOKEN") == await standing(kernel, parent)
        assert 1 == (await told(kernel, parent.action_id)).count("requeued")
        assert [parent.action_id] == (await places(kernel))["queue_ready"]
        # What ended after it was made ready is left for its next park, which has seen it.
        resumed = await claimed(kernel, parent.action_id)
        await wake.sweep(other.journal)
        assert "RUNNING" == (await standing(kernel, parent))[0]
        await park(kernel, resumed, resumed)
        assert (("WAITING", "CHILD"), 0) == (await standing(kernel, parent), await wakes(kernel))
        async with kernel.journal.pool.connection() as connection:
            receipts = await events.list_receipts(connection, "acme", parent.action_id)
        assert list(range(1, len(receipts) + 1)) == [each.sequence for each in receipts]


async def test_the_loop_goes_on_while_there_is_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "BATCH_MAX", 2)
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        parent, children = await family(kernel, kernel)
        await park(kernel, parent, *children)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "insert into wakes select 'acme', gen_random_uuid(), gen_random_uuid(), now() - interval '1 minute' "
                "from generate_series(1, 5)"
            )
            await connection.execute(
                "insert into wakes values ('acme', $1, $2, now())", parent.action_id, children[0].action_id
            )
        sweeper = WakeSweeper(kernel.journal, poll_seconds=60.0)
        assert [True, True, False] == [await sweeper.step() for _ in range(3)]
        assert (("QUEUED", "WOKEN"), 0) == (await standing(kernel, parent), await wakes(kernel))


async def test_rows_of_who_has_ended_are_forgotten(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        parent, children = await family(kernel, kernel, kernel)
        await end(kernel, children[0])
        await end(kernel, parent)
        await end(kernel, children[1])
        assert ("SUCCEEDED", None) == await standing(kernel, parent)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update wakes set create_time = now() - interval '2 minutes'")
        assert not await wake.sweep(kernel.journal)
        assert not await wake.drop_left_over(kernel.journal)
        assert 0 == await wakes(kernel)
