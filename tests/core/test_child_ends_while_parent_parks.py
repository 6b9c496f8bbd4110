"""A step ends while its parent parks: whichever is written first, and whoever sees what, the parent is ready again."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from placet_server.core.kernel import Kernel
from placet_server.core.publication import wake
from placet_server.core.publication.settle import event_of
from placet_server.core.recovery.rescue import close_unwanted
from placet_server.model.action import Action
from placet_server.store import action as actions
from placet_server.store import queries
from placet_server.store.connection import Connection
from placet_server.store.wake import Parent
from tests.core.composed import DONE, end, family, park, standing, waiting_for
from tests.core.kernels import QUEUE, open_kernel, places
from tests.core.parking import told, wakes
from tests.core.workshop import Workshop
from tests.postgres import Database
from tests.store.test_claim_races import waits_for_a_lock

SQL = queries.load("action")
READY = ("QUEUED", "WOKEN")
PARKED = ("WAITING", "CHILD")


async def is_ready_once(kernel: Kernel, parent: Action) -> None:
    assert READY == await standing(kernel, parent)
    assert 1 == (await told(kernel, parent.action_id)).count("requeued")
    assert [parent.action_id] == (await places(kernel))["queue_ready"]
    assert 0 == await wakes(kernel)


async def write_end(connection: Connection, child: Action) -> None:
    """What ends it, without a look."""
    event_type, body = event_of(child, DONE)
    document = {
        "tenant": child.requester.tenant,
        "action_id": child.action_id,
        "lease_id": child.lease_id,
        "state": DONE.state,
        "effect": DONE.effect,
        "output": DONE.output_json,
        "event_type": event_type,
        "event_body": body,
        "parent_id": child.parent_id,
    }
    query = SQL["advance_step"]
    arguments = query.arguments(
        advances=orjson.dumps([document]).decode(), boot_id=child.instance_id, now=None
    )
    assert await connection.fetch(query.sql, *arguments)


async def write_park(connection: Connection, parent: Action, child: Action) -> None:
    """What parks it, without a look."""
    event_type, body = event_of(parent, waiting_for(child))
    document = {
        "tenant": parent.requester.tenant,
        "action_id": parent.action_id,
        "lease_id": parent.lease_id,
        "awaited": [child.action_id],
        "event_type": event_type,
        "event_body": body,
        "woken_body": "{}",
    }
    query = SQL["park"]
    arguments = query.arguments(advances=orjson.dumps([document]).decode(), now=None)
    assert await connection.fetch(query.sql, *arguments)


async def test_one_after_the_other(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        parent, (early, late) = await family(kernel, kernel, kernel)
        await end(kernel, early)
        assert ("RUNNING", None) == await standing(kernel, parent)
        settled = await park(kernel, parent, early, late)
        assert settled is not None
        assert (*READY, None) == (settled.state, settled.cause, settled.lease_id)
        await is_ready_once(kernel, parent)
        line = await kernel.journal.doorbell.wait(1.0)
        assert "work.composed" in {each.capability for each in line}
        await end(kernel, late)
        assert 1 == (await told(kernel, parent.action_id)).count("requeued")


async def test_a_step_that_ended_before_is_none_that_is_waited_for(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        parent, (early, late) = await family(kernel, kernel, kernel)
        await end(kernel, early)
        settled = await park(kernel, parent, late)
        assert settled is not None
        assert (*PARKED, None) == (settled.state, settled.cause, settled.lease_id)
        assert (*PARKED, 0) == (*await standing(kernel, parent), await wakes(kernel))
        await end(kernel, late)
        await is_ready_once(kernel, parent)


async def test_the_end_is_written_and_not_committed_when_it_parks(database: Database) -> None:
    """So the one that parks sees nothing, and the one that has ended the step looks later."""
    async with (
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as other,
    ):
        parent, (child,) = await family(kernel, other)
        async with other.journal.pool.tx() as connection:
            await write_end(connection, child)
            await park(kernel, parent, child)
            assert PARKED == await standing(kernel, parent)
        await wake.wake_parent_of(other.journal, child)
        await is_ready_once(kernel, parent)


async def test_the_park_is_written_and_not_committed_when_the_step_ends(database: Database) -> None:
    """So the one that ends the step sees it running, and the one that parks looks later."""
    async with (
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as other,
    ):
        parent, (child,) = await family(kernel, other)
        async with kernel.journal.pool.tx() as connection:
            await write_park(connection, parent, child)
            async with asyncio.timeout(5):
                await end(other, child)
        assert PARKED == await standing(kernel, parent)
        await wake.wake_parents(kernel.journal, [Parent("acme", parent.action_id)])
        await is_ready_once(kernel, parent)


async def test_the_park_waits_for_a_lock_with_an_old_view_while_the_step_ends(database: Database) -> None:
    async with (
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as other,
    ):
        parent, (child,) = await family(kernel, other)
        async with other.journal.pool.connection() as looking:
            async with other.journal.pool.tx() as connection:
                # As a sibling that is admitted right now.
                await connection.execute(
                    "select from actions where action_id = $1 for share", parent.action_id
                )
                parking = asyncio.create_task(park(kernel, parent, child))
                await waits_for_a_lock(looking)
                await end(other, child)
                assert not parking.done()
            await parking
        await is_ready_once(kernel, parent)


async def test_a_crash_before_the_look_is_made_good_by_the_sweep(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        parent, (child,) = await family(kernel, kernel)
        await park(kernel, parent, child)
        async with kernel.journal.pool.connection() as connection:
            await write_end(connection, child)
        assert PARKED == await standing(kernel, parent)
        assert not await wake.sweep(kernel.journal)
        await is_ready_once(kernel, parent)
        assert "work.composed" in {each.capability for each in await kernel.journal.doorbell.wait(1.0)}


@pytest.mark.parametrize("many", [False, True])
async def test_whoever_cancels_what_is_parked_dies_after_the_mark(database: Database, many: bool) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        parent, (child,) = await family(kernel, kernel)
        await park(kernel, parent, child)
        async with kernel.journal.pool.connection() as connection:
            if many:
                await actions.request_cancel_many(
                    connection, tenant="acme", action_ids=[parent.action_id], event_body="{}", now=None
                )
            else:
                await actions.request_cancel(
                    connection, tenant="acme", action_id=parent.action_id, event_body="{}", now=None
                )
            # For a while it is left to him.
            await wake.sweep(kernel.journal)
            assert PARKED == await standing(kernel, parent)
            await connection.execute(
                "update actions set cancel_requested_time = cancel_requested_time - interval '5 seconds'"
            )
        await wake.sweep(kernel.journal)
        assert 1 == await close_unwanted(kernel.journal)
        assert "CANCELLED" == (await standing(kernel, parent))[0]


async def test_who_is_to_be_cancelled_does_not_park(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        parent, (child,) = await family(kernel, kernel)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update actions set cancel_requested_time = now() where action_id = $1", parent.action_id
            )
        assert await park(kernel, parent, child) is None
        assert "RUNNING" == (await standing(kernel, parent))[0]
