"""Whoever wants the same action at the same time: one gets it, the others are told, and nobody waits for ever.

PLACET_RACE_ROUNDS: how often everything is let loose on the same rows."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable

import pytest

from placet_server.core.execution.judgement import close_verdict
from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store import instance, queue
from placet_server.store.connection import Connection, connect
from tests.postgres import Database
from tests.store.line import (
    NOWHERE,
    advance_queued,
    claim,
    claimed,
    id_of,
    open_boot,
    places,
    read,
    row,
    submit,
)

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "10"))

Move = Callable[[Connection], Awaitable[object]]


async def resend(connection: Connection, boot_id: str, action: Action) -> bool:
    """As a caller who has the key claims what he has read."""
    lease = instance.this_boot("1").boot_id
    got = await actions.claim(
        connection, action, lease_id=lease, boot_id=boot_id, timeout_seconds=5.0, now=None
    )
    return got is not None


async def cancel(connection: Connection, number: int = 1) -> bool:
    return await actions.request_cancel(
        connection, tenant="acme", action_id=id_of(number), event_body="{}", now=None
    )


async def close(connection: Connection, action: Action) -> bool:
    return await actions.close_queued(
        connection,
        action,
        state=ActionState.CANCELLED,
        effect=None,
        lease_id=id_of(99),
        reason="CANCELLED_BY_CALLER",
        cause="CANCELLED_BY_CALLER",
        event_type="settled",
        event_body="{}",
        dead_letter=False,
        now=None,
    )


async def waits_for_a_lock(connection: Connection) -> None:
    async with asyncio.timeout(5):
        while not await connection.fetchval(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ):
            await connection.execute("select pg_stat_clear_snapshot()")


async def test_two_claims_share_nothing_and_wait_for_nobody(database: Database) -> None:
    one, boot_id = await open_boot(database)
    other, other_id = await open_boot(database)
    await submit(one, boot_id, *(row(n) for n in range(1, 101)))
    got: list[list[int]] = [[], []]

    async def drain(connection: Connection, boot: str, mine: list[int]) -> None:
        while picked := await claim(connection, boot, 7):
            assert all(p.action is not None and p.action.instance_id == boot for p in picked)
            mine += claimed(picked)

    await asyncio.gather(drain(one, boot_id, got[0]), drain(other, other_id, got[1]))
    assert list(range(1, 101)) == sorted(got[0] + got[1])
    assert NOWHERE == await places(one)
    async with one.transaction():
        await submit(one, boot_id, *(row(n) for n in range(101, 111)))
    async with one.transaction():
        first = claimed(await claim(one, boot_id, 5))
        async with asyncio.timeout(2):
            second = claimed(await claim(other, other_id, 100))
    assert list(range(101, 111)) == first + second
    await one.close()
    await other.close()


@pytest.mark.parametrize("first", ["claim", "resend"])
async def test_a_claim_and_a_resend_cannot_both_win(database: Database, first: str) -> None:
    one, boot_id = await open_boot(database)
    other, other_id = await open_boot(database)
    await submit(one, boot_id, row(1))
    action = await read(one, 1)
    late: asyncio.Task[bool] | None = None
    async with one.transaction():
        if first == "claim":
            assert [1] == claimed(await claim(one, boot_id))
            late = asyncio.create_task(resend(other, other_id, action))
            await waits_for_a_lock(one)
        else:
            assert await resend(one, boot_id, action)
            # It passes the locked place over.
            assert [] == await claim(other, other_id)
    assert late is None or not await late
    assert [] == await claim(other, other_id)
    stored = await read(one, 1)
    assert (ActionState.RUNNING, 1, boot_id) == (stored.state, stored.attempt, stored.instance_id)
    assert NOWHERE == await places(one)
    await one.close()
    await other.close()


@pytest.mark.parametrize("first", ["claim", "cancel"])
async def test_a_claim_and_a_cancel(database: Database, first: str) -> None:
    """A cancel that is first forbids the claim; one that is second is told to the run."""
    one, boot_id = await open_boot(database)
    other, other_id = await open_boot(database)
    await submit(one, boot_id, row(1))
    late: asyncio.Task[bool] | None = None
    async with one.transaction():
        if first == "claim":
            assert [1] == claimed(await claim(one, boot_id))
            late = asyncio.create_task(cancel(other))
            await waits_for_a_lock(one)
        else:
            assert await cancel(one)
            assert [] == await claim(other, other_id)
    if late is not None:
        assert await late
        assert [id_of(1)] == await actions.list_cancelled(one, boot_id, told_ids=[], count_max=10)
    else:
        assert [] == claimed(await claim(other, other_id))
        assert await close(one, await read(one, 1))
    assert NOWHERE == await places(one)
    await one.close()
    await other.close()


@pytest.mark.parametrize("first", ["claim", "close"])
async def test_a_claim_and_a_closing(database: Database, first: str) -> None:
    one, boot_id = await open_boot(database)
    other, other_id = await open_boot(database)
    await submit(one, boot_id, row(1))
    action = await read(one, 1)
    late: asyncio.Task[bool] | None = None
    async with one.transaction():
        if first == "claim":
            assert [1] == claimed(await claim(one, boot_id))
            late = asyncio.create_task(close(other, action))
            await waits_for_a_lock(one)
        else:
            assert await close(one, action)
            assert [] == await claim(other, other_id)
    assert late is None or not await late
    expected = ActionState.RUNNING if first == "claim" else ActionState.CANCELLED
    assert expected is (await read(one, 1)).state
    assert NOWHERE == await places(one)
    await one.close()
    await other.close()


async def test_a_dead_boot_claims_nothing_even_if_it_dies_meanwhile(database: Database) -> None:
    one, boot_id = await open_boot(database)
    other, other_id = await open_boot(database)
    await submit(one, boot_id, row(1))
    await one.execute("update instances set state = 'DEAD', dead_time = now() where boot_id = $1", other_id)
    assert [] == await claim(other, other_id)
    assert not await resend(other, other_id, await read(one, 1))
    assert [1] == claimed(await claim(one, boot_id))
    await one.close()
    await other.close()


async def test_settling_and_the_place_in_line_are_one_commit(database: Database) -> None:
    """A reader sees the action running without a place, or ready with one."""
    one, boot_id = await open_boot(database)
    other = await connect(database.dsn)
    await submit(one, boot_id, row(1))
    (picked,) = await claim(one, boot_id)

    async def seen() -> tuple[ActionState, int]:
        return (await read(other, 1)).state, len((await places(other))["queue_ready"])

    async with one.transaction():
        assert 1 == await advance_queued(one, picked)
        assert (ActionState.RUNNING, 0) == await seen()
    assert (ActionState.QUEUED, 1) == await seen()
    await one.close()
    await other.close()


PLACE = "insert into queue_ready select 'acme', $1, 'default', 'shop.pack', '1', 5, now() - interval '1 h'"


@pytest.mark.parametrize("first", ["requeue", "drop"])
async def test_an_old_place_is_not_dropped_from_under_an_action_that_is_ready_again(
    database: Database, first: str
) -> None:
    one, boot_id = await open_boot(database)
    other, _ = await open_boot(database)
    await submit(one, boot_id, row(1))
    (picked,) = await claim(one, boot_id)
    await one.execute(PLACE, id_of(1))
    drop = queue.drop_orphans(other, [("acme", id_of(1))])
    if first == "requeue":
        async with one.transaction():
            assert 1 == await advance_queued(one, picked)
            dropping = asyncio.create_task(drop)
            await waits_for_a_lock(one)
        assert 0 == await dropping
    else:
        async with other.transaction():
            assert 1 == await drop
            requeueing = asyncio.create_task(advance_queued(one, picked))
            await waits_for_a_lock(other)
        assert 1 == await requeueing
    assert NOWHERE | {"queue_ready": [1]} == await places(one)
    assert [1] == claimed(await claim(one, boot_id))
    await one.close()
    await other.close()


async def test_an_old_place_lets_nothing_begin_before_its_time(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1), row(2))
    (first, _) = sorted(await claim(connection, boot_id), key=lambda p: p.action_id)
    await connection.execute(PLACE, id_of(1))
    await submit(connection, boot_id, row(3))
    assert 1 == await advance_queued(connection, first, ready_delay_seconds=60.0, claim_delay_seconds=60.0)
    (picked,) = await claim(connection, boot_id, 1)
    assert (id_of(1), None) == (picked.action_id, picked.action)
    assert 1 == await queue.set_back(connection, [("acme", id_of(1)), ("acme", id_of(3))], None)
    assert [3] == claimed(await claim(connection, boot_id, 1))
    assert 0 == await queue.set_back(connection, [("acme", id_of(1))], None)
    await connection.close()


async def test_everybody_at_once_never_locks_crosswise(database: Database) -> None:
    """Claims, resends, retries, cancels, closings, promotions and sweeps over the same few rows, from six sessions:
    every attempt has one owner, and Postgres never has to break a deadlock."""
    boots = [await open_boot(database) for _ in range(6)]
    first, first_id = boots[0]
    dice = random.Random(7)
    numbers = range(1, 25)
    won: list[tuple[str, int]] = []

    async def work(connection: Connection, boot_id: str, seed: int) -> None:
        mine = random.Random(seed)
        for _ in range(6):
            await mine.choice((take, take, attend, give_up, sweep))(connection, boot_id, mine)

    async def take(connection: Connection, boot_id: str, mine: random.Random) -> None:
        for picked in await claim(connection, boot_id, mine.randrange(1, 9)):
            if picked.action is not None:
                won.append((picked.action_id, picked.action.attempt))
                delay = mine.choice((0.0, 0.0, 0.001))
                await advance_queued(connection, picked, claim_delay_seconds=delay)

    async def attend(connection: Connection, boot_id: str, mine: random.Random) -> None:
        action = await read(connection, mine.choice(numbers))
        if action.state is ActionState.QUEUED and await resend(connection, boot_id, action):
            won.append((action.action_id, action.attempt + 1))

    async def give_up(connection: Connection, boot_id: str, mine: random.Random) -> None:
        number = mine.choice(numbers)
        await cancel(connection, number)
        action = await read(connection, number)
        verdict = close_verdict(action, 0) if action.state is ActionState.QUEUED else None
        if verdict is not None:
            await close(connection, action)

    async def sweep(connection: Connection, boot_id: str, mine: random.Random) -> None:
        await queue.promote(connection, 10, None)
        for action in await queue.list_expired(connection, 10, None):
            if action.state is ActionState.QUEUED:
                await close(connection, action)
            else:
                await queue.drop_orphans(connection, [("acme", action.action_id)])

    for _ in range(ROUNDS):
        await first.execute("truncate actions, events, queue_ready, queue_delayed, dead_letters")
        won.clear()
        await submit(
            first, first_id, *(row(n, delay_seconds=dice.choice((None, None, 0.001))) for n in numbers)
        )
        async with asyncio.timeout(30):
            await asyncio.gather(*(work(*boot, dice.randrange(10**9)) for boot in boots))
        assert len(won) == len(set(won))
        await _agree(first, won)
    await first.execute("select pg_stat_force_next_flush()")
    assert 0 == await first.fetchval(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    for connection, _ in boots:
        await connection.close()


async def _agree(connection: Connection, won: list[tuple[str, int]]) -> None:
    """Every attempt there was had an owner, every owner an attempt; and who waits has a place, and nobody else."""
    started = await connection.fetch(
        "select action_id::text, (body::json ->> 'attempt')::int from events where type = 'attempt_started'"
    )
    assert sorted(won) == sorted((r[0], r[1]) for r in started)
    waiting = {
        str(r[0]) for r in await connection.fetch("select action_id from actions where state = 'QUEUED'")
    }
    # A sweep may leave an old place behind, which only costs whoever finds it a look; nobody who waits may have none.
    assert waiting <= set(await _standing(connection))
    await queue.drop_orphans(connection, [("acme", id_of(number)) for number in range(1, 25)])
    assert sorted(waiting) == sorted(set(await _standing(connection)))


async def _standing(connection: Connection) -> list[str]:
    rows = await connection.fetch(
        "select action_id from queue_ready union all select action_id from queue_delayed"
    )
    return [str(r[0]) for r in rows]
