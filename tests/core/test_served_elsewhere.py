"""Work is stored by a server that cannot run it if another can, is run by that one alone, and is seen if none can."""

from __future__ import annotations

import pytest

from placet.app import App
from placet_server.core.admission import elsewhere
from placet_server.core.admission.submit_batch import submit_batch
from placet_server.core.execution.servers import list_servers, tell_draining
from placet_server.core.recovery.redrive import list_queues
from placet_server.model.action import Submission
from placet_server.model.gate_errors import HandlerNotFound
from placet_server.model.lifecycle import ActionState
from tests.core.kernels import QUEUE, call_of, declare_dead, dispatch, open_kernel, put, read, run, work_off
from tests.core.workshop import Workshop
from tests.postgres import Database

FRONT = App("front")


@FRONT.tool("front.ping", "read", key="optional")
async def ping() -> str:
    """All that the one in front can do by itself."""
    return "pong"


@pytest.fixture(autouse=True)
def looks_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "REFRESH_SECONDS", 0.0)


async def test_it_is_stored_here_and_run_there_alone(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with (
        open_kernel(database.dsn, FRONT, queue=QUEUE) as front,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as there,
    ):
        first = await put(front, "work.idempotent", {"order": "7"}, "k")
        batch = await submit_batch(front, [(call_of("work.read", {}), Submission())])
        await dispatch(front)
        assert ActionState.QUEUED is (await read(front, first.action.action_id)).state
        again = await put(front, "work.idempotent", {"order": "7"}, "k")
        assert (True, first.action.action_id) == (again.attached, again.action.action_id)
        await work_off(there)
        done = await read(front, first.action.action_id)
        assert (ActionState.SUCCEEDED, there.boot_id) == (done.state, done.instance_id)
        assert not isinstance(batch[0], Exception)
        assert ActionState.SUCCEEDED is (await read(front, batch[0].action.action_id)).state
        with pytest.raises(HandlerNotFound):
            await run(front, "work.read", {})


async def test_who_is_dead_takes_nothing_or_does_not_know_it_serves_nobody(database: Database) -> None:
    async with open_kernel(database.dsn, FRONT, queue=QUEUE) as front:
        async with open_kernel(database.dsn, Workshop().app) as idle:
            with pytest.raises(HandlerNotFound):
                await put(front, "work.read", {})
            # Whoever has the handler stores it, whether or not anybody takes it.
            await put(idle, "work.read", {}, place=Submission(queue="slow"))
            (slow,) = await list_queues(front.journal, tenant=None)
            assert ("slow", 1, 1) == (slow.name, slow.ready, slow.unroutable)
        async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as there:
            await put(front, "work.read", {})
            assert {0} == {queue.unroutable for queue in await list_queues(front.journal, tenant="acme")}
            await declare_dead(there)
            with pytest.raises(HandlerNotFound):
                await put(front, "work.read", {})
            assert [(1, 1), (1, 1)] == [
                (queue.ready, queue.unroutable) for queue in await list_queues(front.journal, tenant="acme")
            ]


async def test_what_is_behind_a_connector_is_taken_by_whoever_takes_anything(database: Database) -> None:
    async with open_kernel(database.dsn, FRONT) as front:
        async with open_kernel(database.dsn, Workshop().app) as idle:
            await put(idle, "work.read", {})
            async with idle.journal.pool.connection() as connection:
                await connection.execute("update manifests set connector = '{}' where name = 'workshop'")
        assert [1] == [each.unroutable for each in await list_queues(front.journal, tenant="acme")]
        async with open_kernel(database.dsn, FRONT, queue=QUEUE):
            assert [0] == [each.unroutable for each in await list_queues(front.journal, tenant="acme")]


async def test_servers_are_told_by_what_they_serve_and_whether_they_stay(database: Database) -> None:
    async with (
        open_kernel(database.dsn, FRONT) as front,
        open_kernel(database.dsn, Workshop().app, queue=QUEUE) as there,
    ):
        await tell_draining(there.journal)
        pages = [await list_servers(front.journal, after="", page_size=1)]
        pages += [await list_servers(front.journal, after=pages[0][0].boot.boot_id, page_size=1)]
        found = {page[0].boot.boot_id: page[0] for page in pages}
        assert {front.boot_id, there.boot_id} == set(found)
        assert (("front.ping@1",), 0, False) == (
            found[front.boot_id].boot.serves,
            found[front.boot_id].boot.queue_slots,
            found[front.boot_id].is_draining,
        )
        assert (QUEUE.slots_max, True, False) == (
            found[there.boot_id].boot.queue_slots,
            found[there.boot_id].is_draining,
            found[there.boot_id].is_silent,
        )
        assert "work.read@1" in found[there.boot_id].boot.serves
        await declare_dead(there)
        assert [front.boot_id] == [
            s.boot.boot_id for s in await list_servers(front.journal, after="", page_size=10)
        ]
