"""Whoever takes several rows takes them in the order of their ids, whatever order he is told them in: while he waits
for the first one he holds none of the others, so that whoever has that one can take them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from placet_server.model.usage import Counters
from placet_server.store import action as actions
from placet_server.store import queue, wake
from placet_server.store.batch import BatchWriter
from placet_server.store.clock import DatabaseClock
from placet_server.store.connection import Connection, connect
from tests.postgres import Database
from tests.store.line import SQL, claim, id_of, open_boot, row, submit

HOLD = "select from {} where action_id = $1 for update"
# Held by nobody, or it is an error at once.
TAKE = HOLD + " nowait"
WAITS = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


@asynccontextmanager
async def three(database: Database) -> AsyncIterator[tuple[Connection, Connection, Connection, str]]:
    """Who waits, who holds, who looks, and the boot."""
    one, boot_id = await open_boot(database)
    other, looking = await connect(database.dsn), await connect(database.dsn)
    try:
        yield one, other, looking, boot_id
    finally:
        for each in (one, other, looking):
            await each.close()


async def met(
    statement: Callable[[], Awaitable[Any]],
    other: Connection,
    looking: Connection,
    table: str = "actions",
    free: tuple[str, ...] = ("actions",),
) -> None:
    """The statement waits for the first row of the table, and has not touched the second one of these."""
    tx = other.transaction()
    await tx.start()
    await other.execute(HOLD.format(table), id_of(1))
    waiting = asyncio.ensure_future(statement())
    while not await looking.fetchval(WAITS):
        assert not waiting.done()
    for each in free:
        assert "SELECT 1" == await other.execute(TAKE.format(each), id_of(2))
    await tx.commit()
    await waiting


async def cancel(connection: Connection) -> None:
    await actions.request_cancel_all(
        connection, tenant="acme", action_ids=[id_of(2), id_of(1)], event_body="{}", now=None
    )


@pytest.mark.both_servers
async def test_runs_that_are_to_stop_for_another_are_marked_in_order_and_after_their_places(
    database: Database,
) -> None:
    async with three(database) as (one, other, looking, boot_id):
        await submit(one, boot_id, row(1), row(2))
        await met(lambda: cancel(one), other, looking)
    async with three(database) as (one, other, looking, boot_id):
        await submit(one, boot_id, row(3))
        await one.execute("update actions set cancel_requested_time = null")
        await met(lambda: cancel(one), other, looking, "queue_ready", ("queue_ready", "actions"))
        assert 4 == await one.fetchval("select count(*) from events where type = 'cancel_requested'")
        assert 2 == await one.fetchval("select count(*) from actions where cancel_requested_time is not null")
        assert 2 == await one.fetchval("select count(*) from queue_ready where expire_time <= now()")


async def test_what_is_claimed_is_taken_in_order_and_told_by_priority(database: Database) -> None:
    async with three(database) as (one, other, looking, boot_id):
        await submit(one, boot_id, row(1), row(2, priority=4))
        picked: list[str] = []

        async def take() -> None:
            picked.extend(each.action_id for each in await claim(one, boot_id))

        await met(take, other, looking)
        assert [id_of(2), id_of(1)] == picked


async def test_old_places_are_set_back_in_order(database: Database) -> None:
    async with three(database) as (one, other, looking, boot_id):
        await submit(one, boot_id, row(1), row(2))
        await one.execute("update actions set ready_time = now() + interval '1 hour'")
        items = [("acme", id_of(2)), ("acme", id_of(1))]
        await met(lambda: queue.set_back(one, items, None), other, looking, "queue_ready", ("queue_ready",))


async def test_wakes_that_somebody_else_sweeps_are_left_to_him(database: Database) -> None:
    async with three(database) as (one, other, _, _):
        for number in (1, 2):
            await one.execute(
                "insert into wakes (tenant, parent_id, child_id, create_time) values ('acme', $1, $1, 'epoch')",
                id_of(number),
            )
        async with other.transaction():
            await other.execute("select from wakes where parent_id = $1 for update", id_of(1))
            assert 1 == await wake.drop_left_over(one, age_seconds=1, count_max=9, now=None)


async def test_messages_of_a_batch_are_taken_in_order_whatever_their_keys_are(database: Database) -> None:
    def of(number: int, message: str) -> dict[str, Any]:
        part = {"message_id": message, "message_digest": "ab" * 32, "message_expire_time_us": 2**52}
        return row(number) | part

    claim_message = (
        "insert into message_claims (tenant, subject, message_id, action_id, digest, expire_time) "
        "values ('acme', 'alice', $1, $2, '', 'infinity')"
    )
    async with three(database) as (one, other, looking, boot_id):
        query = SQL["submit_message"]
        rows = orjson.dumps([of(1, "m2"), of(2, "m1")]).decode()
        tx = other.transaction()
        await tx.start()
        await other.execute(claim_message, "m1", id_of(8))
        arguments = query.arguments(admissions=rows, boot_id=boot_id, now=None)
        waiting = asyncio.ensure_future(one.fetch(query.sql, *arguments))
        while not await looking.fetchval(WAITS):
            assert not waiting.done()
        # Were it taken, these two would wait for each other.
        await other.execute(claim_message, "m2", id_of(9))
        await tx.rollback()
        assert 2 == len(await waiting)


async def test_an_entry_waits_behind_no_child_of_another_parent(database: Database) -> None:
    async with three(database) as (one, other, looking, boot_id):
        await submit(one, boot_id, *(row(n, effect_class="COMPOSED", effect_marked=True) for n in (1, 2)))
        leases = {p.action_id: p.action.lease_id for p in await claim(one, boot_id) if p.action is not None}

        async def connected() -> Connection:
            return one

        writer = BatchWriter(connect=connected, boot_id=boot_id, clock=DatabaseClock())
        entry: dict[str, Any] = dict.fromkeys(Counters.__dataclass_fields__, 0)
        entry |= {"tenant": "acme", "action_id": id_of(2), "lease_id": leases[id_of(2)], "ordinal": 1}
        entry |= {"type": "opened", "turn": 0, "body": "{}", "model": "m", "budget": "{}"}
        entry |= {"seen": [], "said": [], "event_type": "run_opened", "event_body": "{}"}
        child = row(3, idempotency_key=None, key_digest=None, parent_id=id_of(1), step="s")
        child |= {"number": 1, "parent_lease_id": leases[id_of(1)], "step_path": "s"}
        futures = [writer.append(entry), writer.admit_child(child)]  # type: ignore[arg-type]
        await met(lambda: writer._flush(writer._take()), other, looking)
        assert None not in [future.result() for future in futures]
