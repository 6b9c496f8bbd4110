"""One rescuer wins a boot, a boot that renewed is not rescued, and no blocked loop loses a lease."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from placet_server.loops.instance_heartbeat import InstanceHeartbeat
from placet_server.store.clock import FixedClock
from placet_server.store.instance import (
    Boot,
    is_alive,
    list_expired,
    mark_all_others_dead,
    mark_dead_cas,
    register,
    renew,
    retire,
    this_boot,
)
from placet_server.store.pool import Pool
from tests.postgres import Database
from tests.store.support import wait_until, wait_until_async

START = datetime(2030, 1, 1, tzinfo=UTC)
LEASE_SECONDS = 0.6


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    async with Pool(database.dsn) as opened:
        yield opened


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(START)


async def add_boot(pool: Pool, lease_seconds: float = 15.0, now: datetime | None = None) -> Boot:
    boot = this_boot("1.2.3", lease_seconds)
    async with pool.connection() as connection:
        await register(connection, boot, now=now)
    return boot


async def alive(pool: Pool, boot: Boot) -> bool:
    async with pool.connection() as connection:
        return await is_alive(connection, boot.boot_id)


@pytest.mark.both_servers
async def test_two_rescuers_at_once_one_wins(database: Database, pool: Pool, clock: FixedClock) -> None:
    boot = await add_boot(pool, now=clock.now())
    now = clock.advance(timedelta(seconds=16))
    async with pool.connection() as second, asyncio.TaskGroup() as group:
        (expired,) = await list_expired(second, now=now)
        assert (boot.boot_id, START) == (expired.boot_id, expired.heartbeat_time)
        async with pool.tx() as first:
            assert await mark_dead_cas(first, boot.boot_id, START, now=now)
            late = group.create_task(mark_dead_cas(second, boot.boot_id, START, now=now))
            await wait_for_lock(database)
        assert not await late
        assert [] == await list_expired(second, now=now)


async def wait_for_lock(database: Database) -> None:
    """Until some session of the database waits for another."""
    watcher = await asyncpg.connect(database.dsn)
    waits = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = $1)"
    waiting, tries_left = False, 5000
    while not waiting and tries_left:
        waiting, tries_left = await watcher.fetchval(waits, database.name), tries_left - 1
    await watcher.close()
    assert waiting


async def test_a_boot_that_renewed_after_it_was_seen_expired_is_not_rescued(
    pool: Pool, clock: FixedClock
) -> None:
    boot = await add_boot(pool, now=clock.now())
    now = clock.advance(timedelta(seconds=16))
    async with pool.connection() as connection:
        (expired,) = await list_expired(connection, now=now)
        assert await renew(connection, boot.boot_id, now=now)
        later = clock.advance(timedelta(seconds=16))
        assert not await mark_dead_cas(connection, boot.boot_id, expired.heartbeat_time, now=later)
    assert await alive(pool, boot)


async def test_a_boot_is_not_dead_before_its_lease_has_run_out(pool: Pool, clock: FixedClock) -> None:
    boot = await add_boot(pool, now=clock.now())
    now = clock.advance(timedelta(seconds=15))
    async with pool.connection() as connection:
        assert [] == await list_expired(connection, now=now)
        assert not await mark_dead_cas(connection, boot.boot_id, START, now=now)


async def test_the_dead_do_not_renew_nor_do_the_unknown(pool: Pool, clock: FixedClock) -> None:
    boot = await add_boot(pool, now=clock.now())
    async with pool.connection() as connection:
        await retire(connection, boot.boot_id, now=clock.advance(timedelta(seconds=1)))
        assert not await renew(connection, boot.boot_id)
        assert not await renew(connection, this_boot("1").boot_id)
    assert not await alive(pool, boot)


async def test_a_clock_that_jumps_back_takes_no_lease_back(pool: Pool, clock: FixedClock) -> None:
    boot = await add_boot(pool, now=clock.now())
    async with pool.connection() as connection:
        assert await renew(connection, boot.boot_id, now=clock.advance(timedelta(hours=-2)))
        assert [] == await list_expired(connection, now=START + timedelta(seconds=10))


async def test_the_owner_of_the_data_folder_declares_all_others_dead_at_once(pool: Pool) -> None:
    others = [await add_boot(pool) for _ in range(2)]
    own = [await add_boot(pool) for _ in range(2)]
    async with pool.connection() as connection:
        dead = await mark_all_others_dead(connection, [boot.boot_id for boot in own])
        assert [] == await mark_all_others_dead(connection, [boot.boot_id for boot in own])
    assert {boot.boot_id for boot in others} == set(dead)
    assert [True, True] == [await alive(pool, boot) for boot in own]


async def test_a_blocked_main_loop_keeps_its_lease(database: Database, pool: Pool) -> None:
    # No thread of a busy machine is late by that much.
    lease = 3.0
    boot = await add_boot(pool, lease)
    dead = threading.Event()
    heartbeat = InstanceHeartbeat(database.dsn, boot, on_dead=dead.set)
    heartbeat.start()

    block_the_loop(1.5 * lease)

    async with pool.connection() as connection:
        assert [] == await list_expired(connection)
        assert await is_alive(connection, boot.boot_id)
    assert not dead.is_set()
    assert heartbeat.store_ok_for(lease)
    heartbeat.stop()
    assert not await alive(pool, boot)


def block_the_loop(seconds: float) -> None:
    """Burn the processor, as a handler with a long computation does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


@pytest.mark.parametrize("gone", [False, True], ids=["dead", "gone"])
async def test_a_boot_that_was_declared_dead_is_told_once(database: Database, pool: Pool, gone: bool) -> None:
    boot = await add_boot(pool, LEASE_SECONDS)
    calls: list[str] = []
    heartbeat = InstanceHeartbeat(
        database.dsn, boot, on_dead=lambda: calls.append(threading.current_thread().name)
    )
    heartbeat.start()
    await wait_until_async(lambda: heartbeat.store_ok_since is not None)

    async with pool.connection() as connection:
        await mark_all_others_dead(connection, [])
        if gone:
            await connection.execute("delete from instances")

    await wait_until_async(lambda: calls != [])
    heartbeat.stop()
    assert ["instance-heartbeat"] == calls


async def test_a_stop_without_handover_leaves_the_lease_to_expire(database: Database, pool: Pool) -> None:
    boot = await add_boot(pool, LEASE_SECONDS)
    heartbeat = InstanceHeartbeat(database.dsn, boot, on_dead=lambda: None)
    heartbeat.start()
    await wait_until_async(lambda: heartbeat.store_ok_since is not None)
    heartbeat.stop(hand_over=False)
    assert await alive(pool, boot)


def test_a_heartbeat_that_was_never_started_can_be_stopped() -> None:
    InstanceHeartbeat("postgresql://nowhere", this_boot("1"), on_dead=lambda: None).stop()


def test_a_store_away_from_the_start_kills_nobody() -> None:
    deaths: list[None] = []
    dsn = "postgresql://a:b@/c?host=/nonexistent"
    heartbeat = InstanceHeartbeat(dsn, this_boot("1", LEASE_SECONDS), on_dead=lambda: deaths.append(None))
    heartbeat.start()
    wait_until(lambda: heartbeat._answered_last is None and heartbeat._thread.is_alive())
    assert heartbeat.store_ok_since is None
    heartbeat.stop()
    assert [] == deaths
