"""Whatever ends a step leaves its composed parent a row that makes it ready once; nothing else does, and none stays."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store import event as events
from placet_server.store import queries, wake
from placet_server.store.connection import Connection
from placet_server.store.reconcile import Due, note_finding
from placet_server.store.wake import Parent
from tests.postgres import Database
from tests.store.line import LINE, advance, claim, id_of, open_boot, places, read, row, submit
from tests.store.test_claim_races import waits_for_a_lock

PARENT, CHILD, OTHER = 1, 2, 3
PARENTS = [Parent("acme", id_of(PARENT))]
# As the writer ends a step.
STEP = {"statement": "advance_step"}
DONE: dict[str, Any] = {"state": "SUCCEEDED", "effect": "DONE", "output": "1", "event_type": "settled"}
FAILED: dict[str, Any] = {"state": "FAILED", "reason": "HANDLER_FAILED", "event_type": "settled"}
DOUBT: dict[str, Any] = {
    "state": "AMBIGUOUS",
    "effect": "UNKNOWN",
    "effect_unknown": True,
    "reason": "AMBIGUOUS",
}


async def family(
    connection: Connection, boot_id: str, parent: str = "COMPOSED", child: str = "UNSAFE", **changes: Any
) -> Action:
    """A parent as it is claimed, with two steps; the first of them, claimed."""
    await submit(connection, boot_id, row(PARENT, effect_class=parent, capability="shop.sell"))
    await claim(connection, boot_id, line=LINE._replace(capability="shop.sell"))
    await submit(connection, boot_id, *(row(n, effect_class=child, **changes) for n in (CHILD, OTHER)))
    await connection.execute(
        "update actions set parent_id = $1 where capability = 'shop.pack'", id_of(PARENT)
    )
    await claim(connection, boot_id)
    return await read(connection, CHILD)


async def park(connection: Connection, number: int = PARENT, cause: str = "CHILD") -> None:
    await connection.execute(
        "update actions set state = 'WAITING', cause = $2, lease_id = null, ready_time = now(), budget_time = now() "
        "where action_id = $1",
        id_of(number),
        cause,
    )


async def wakes(connection: Connection) -> list[tuple[int, int]]:
    found = await connection.fetch("select parent_id::text, child_id::text from wakes order by 1, 2")
    return [(int(r[0][-12:]), int(r[1][-12:])) for r in found]


async def close(connection: Connection, number: int, **changes: Any) -> bool:
    ending = {"state": ActionState.CANCELLED, "reason": "CANCELLED_BY_CALLER", "cause": None} | changes
    return await actions.close_queued(
        connection,
        await read(connection, number),
        effect=None,
        lease_id=id_of(99),
        event_type="settled",
        event_body="{}",
        dead_letter=False,
        now=None,
        **ending,
    )


async def close_many(connection: Connection, number: int) -> bool:
    item = {
        "action_id": id_of(number),
        "sequence": (await read(connection, number)).sequence,
        "lease_id": id_of(99),
        "state": "CANCELLED",
        "reason": "CANCELLED_BY_CALLER",
        "cause": None,
        "event_type": "settled",
        "event_body": "{}",
    }
    query = queries.load("action")["close_many"]
    arguments = query.arguments(tenant="acme", items=orjson.dumps([item]).decode(), now=None)
    return bool(await connection.fetch(query.sql, *arguments))


@pytest.mark.both_servers
async def test_every_end_of_a_step_is_kept_for_its_composed_parent_alone(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    for parent, kept in (("COMPOSED", True), ("UNSAFE", False)):
        ends: list[Any] = [DONE | STEP, FAILED | STEP, DONE, FAILED, DOUBT, close, close_many]
        for end in ends:
            await connection.execute("truncate actions, events, queue_ready, wakes, reconciles")
            child = await family(connection, boot_id, parent)
            if isinstance(end, dict):
                assert await advance(connection, child, parent_id=id_of(PARENT), **end)
            else:
                await connection.execute(
                    "update actions set state = 'QUEUED', lease_id = null where action_id = $1", id_of(CHILD)
                )
                assert await end(connection, CHILD)
            assert ([(PARENT, CHILD)] if kept else []) == await wakes(connection), (parent, end)
    await connection.close()


async def test_only_a_parent_that_may_be_parked_is_looked_at(database: Database) -> None:
    """One that runs under the same boot parks by the same writer, so the next statement of that sees the row."""
    connection, boot_id = await open_boot(database)
    child = await family(connection, boot_id)

    async def looked_at(how: str) -> bool:
        trial = connection.transaction()
        await trial.start()
        await connection.execute(f"update actions set {how} where action_id = $1", id_of(PARENT))
        (told,) = await advance(connection, child, parent_id=id_of(PARENT), **DONE | STEP)
        await trial.rollback()
        return bool(told["wakes"])

    assert not await looked_at("labels = labels")
    assert await looked_at("instance_id = gen_random_uuid()")
    assert await looked_at("state = 'WAITING', cause = 'CHILD', lease_id = null, ready_time = now()")
    assert await looked_at("state = 'QUEUED', lease_id = null, ready_time = now()")
    assert not await looked_at("state = 'SUCCEEDED', output = '1', settle_time = now()")
    (told,) = await advance(connection, child, **DONE)
    assert not told["wakes"]
    await connection.close()


async def test_doubt_that_somebody_is_asked_about_wakes_nobody_until_it_is_given_up(
    database: Database,
) -> None:
    connection, boot_id = await open_boot(database)
    child = await family(connection, boot_id, child="RECONCILABLE")
    await advance(connection, child, event_type="ambiguous", **DOUBT)
    await connection.execute(
        "update actions set state = 'QUEUED', lease_id = null where action_id = $1", id_of(OTHER)
    )
    doubt = {"state": ActionState.AMBIGUOUS, "reason": "AMBIGUOUS"}
    await connection.execute(
        "update actions set effect_unknown = true, effect = 'UNKNOWN' where action_id = $1", id_of(OTHER)
    )
    assert await close(connection, OTHER, **doubt)
    assert [] == await wakes(connection)
    since = await connection.fetchval(
        "select (extract(epoch from since_time) * 1000000)::bigint from reconciles where action_id = $1",
        id_of(CHILD),
    )
    due = Due(await read(connection, CHILD), 1, False, since, since)

    async def note(due: Due, *, give_up: bool) -> list[tuple[int, int]]:
        await note_finding(connection, due, finding="", delay_seconds=1.0, give_up=give_up, now=None)
        return await wakes(connection)

    assert [] == await note(due, give_up=False)
    assert [] == await note(due._replace(since_time_us=since - 1), give_up=True)
    await connection.execute("update reconciles set wanted = true")
    assert [] == await note(due, give_up=True)
    await connection.execute("update reconciles set wanted = false")
    assert [(PARENT, CHILD)] == await note(due, give_up=True)
    assert [(PARENT, CHILD)] == await note(due, give_up=True)
    await connection.close()


async def test_a_parent_is_made_ready_once_whoever_looks(database: Database) -> None:
    one, boot_id = await open_boot(database)
    other, _ = await open_boot(database)
    child = await family(one, boot_id)
    await advance(one, child, parent_id=id_of(PARENT), **DONE)
    assert [] == await wake.wake(one, PARENTS, None)
    await park(one)
    before = await read(one, PARENT)
    async with one.transaction():
        (woken,) = await wake.wake(one, PARENTS, None)
        late = asyncio.create_task(wake.wake(other, PARENTS, None))
        await waits_for_a_lock(one)
    assert [] == await late
    assert (id_of(PARENT), LINE._replace(capability="shop.sell")) == woken
    after = await read(one, PARENT)
    assert (ActionState.QUEUED, "WOKEN", before.sequence + 1) == (after.state, after.cause, after.sequence)
    assert ((after.budget_time_us or 0) - (before.budget_time_us or 0)) == (
        (after.ready_time_us or 0) - (before.ready_time_us or 0)
    )
    receipts = await events.list_receipts(one, "acme", id_of(PARENT))
    last = receipts[-1]
    assert ("requeued", after.receipt_digest) == (last.type, last.receipt)
    assert {"attempt": 1, "cause": "WOKEN", "ready_delay_seconds": 0.0} == orjson.loads(last.body)
    assert [PARENT] == (await places(one))["queue_ready"]
    old = await one.fetchval(
        "select q.ready_time = a.create_time from queue_ready as q join actions as a using (tenant, action_id)"
    )
    assert old
    assert [] == await wakes(one)
    await one.close()
    await other.close()


async def test_whoever_waits_for_something_else_is_left_alone(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    child = await family(connection, boot_id)
    await advance(connection, child, parent_id=id_of(PARENT), **DONE)
    others = [Parent("acme", id_of(OTHER)), Parent("evil", id_of(PARENT)), Parent("acme", id_of(77))]
    for cause in ("APPROVAL", "CHILD"):
        await park(connection, cause=cause)
        await park(connection, OTHER)
        assert [] == await wake.wake(connection, others, None)
        assert (PARENTS if cause == "CHILD" else []) == await wake.list_parents(connection, 10)
    await connection.execute("update actions set cancel_requested_time = now()")
    assert [] == await wake.wake(connection, PARENTS, None)
    # Whoever has asked for that is gone: the sweep closes what has an expired place.
    await connection.execute("update actions set cancel_requested_time = now() - interval '5 seconds'")
    assert 1 == len(await wake.wake(connection, PARENTS, None))
    assert await connection.fetchval("select expire_time <= now() from queue_ready")
    await connection.close()


async def test_the_sweep_finds_whom_nobody_woke_and_forgets_what_wakes_nobody(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    child = await family(connection, boot_id)
    await advance(connection, child, parent_id=id_of(PARENT), **DONE)
    # As many as a sweep takes at once belong to parents that run.
    await connection.execute(
        "insert into wakes select 'acme', $1, gen_random_uuid(), now() from generate_series(1, 20)",
        id_of(OTHER),
    )
    await connection.execute(
        "insert into wakes select 'acme', gen_random_uuid(), gen_random_uuid(), now() from generate_series(1, 5)"
    )
    assert [] == await wake.list_parents(connection, 3)
    await park(connection)
    assert PARENTS == await wake.list_parents(connection, 3)

    async def drop(age_seconds: float, count_max: int) -> int:
        return await wake.drop_left_over(connection, age_seconds=age_seconds, count_max=count_max, now=None)

    assert 0 == await drop(60.0, 100)
    assert 3 == await drop(0.0, 3)
    assert 2 == await drop(0.0, 100)
    await connection.execute(
        "update actions set state = 'SUCCEEDED', output = '1', effect = 'DONE', settle_time = now() "
        "where action_id = $1",
        id_of(OTHER),
    )
    assert 20 == await drop(0.0, 100)
    assert [(PARENT, CHILD)] == await wakes(connection)
    await connection.close()
