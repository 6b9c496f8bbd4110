"""Servers under one name, one after the other or both at once, and one whose row somebody has taken away: what the old
one ran goes to others, and it begins nothing more."""

from __future__ import annotations

import pytest

from placet_server.core.publication.promote import promote
from placet_server.core.recovery.rescue import rescue
from placet_server.loops.lease_rescuer import LeaseRescuer
from placet_server.model.errors import Draining
from placet_server.model.lifecycle import ActionState
from placet_server.store import instance
from tests.core.kernels import QUEUE, dispatch, open_kernel, put, read, until, work_off
from tests.core.workshop import Workshop
from tests.postgres import Database


async def test_what_ran_under_a_row_that_is_gone_is_run_by_the_next_under_its_name(
    database: Database,
) -> None:
    """Host and pid of both are the same: what tells them apart is new at every start."""
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as old:
        action = (await put(old, "work.idempotent", {}, "k")).action
        await dispatch(old)
        await until(lambda: [1] == shop.attempts)
        async with open_kernel(database.dsn, shop.app, queue=QUEUE) as new:
            async with new.journal.pool.connection() as connection:
                await connection.execute("delete from instances where boot_id = $1", old.boot_id)
                # Its heartbeat hears that it is dead, as its process then does.
                assert not await instance.renew(connection, old.boot_id)
            assert 0 == (await rescue(new.journal)).actions
            rescuer = LeaseRescuer(new.journal, store_ok_for=lambda seconds: True, lease_seconds=15.0)
            await rescuer.step()
            assert ActionState.QUEUED is (await read(new, action.action_id)).state
            await dispatch(old)
            assert [1] == shop.attempts
            async with new.journal.pool.connection() as connection:
                # Its pause is over.
                for table in ("actions", "queue_delayed"):
                    await connection.execute(f"update {table} set ready_time = now() - interval '1 second'")
            await promote(new.journal)
            shop.gate.set()
            await work_off(new)
            assert [1, 2] == shop.attempts
            # The old one comes to its end as well, and is not heard.
            await until(lambda: not len(old.engine.runs))
            done = await read(new, action.action_id)
            assert (ActionState.SUCCEEDED, 2, new.boot_id) == (done.state, done.attempt, done.instance_id)


@pytest.mark.parametrize("is_retired", [False, True])
async def test_one_that_is_leaving_takes_no_lease_beside_the_one_that_follows_it(
    database: Database, is_retired: bool
) -> None:
    shop = Workshop()
    shop.gate.set()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as old,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as new,
    ):
        if is_retired:
            async with old.journal.pool.connection() as connection:
                await instance.retire(connection, old.boot_id)
        else:
            old.start_draining()
        with pytest.raises(Draining):
            await put(old, "work.idempotent", {}, "refused")
        action = (await put(new, "work.idempotent", {}, "k")).action
        await dispatch(old)
        assert ActionState.QUEUED is (await read(new, action.action_id)).state
        await work_off(new)
        assert new.boot_id == (await read(new, action.action_id)).instance_id
