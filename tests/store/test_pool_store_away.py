"""A store that freezes, restarts, refuses or is full costs its callers a typed error in bounded time, and no more."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from placet_server.embedded.server import EmbeddedPostgres
from placet_server.model.errors import StoreUnavailable
from placet_server.store.connection import ConnectionOptions, Failure, classify, connect, is_away
from placet_server.store.pool import Pool
from tests.postgres import Database
from tests.store.support import frozen, runs, wait_until_async

TIMEOUT_SECONDS = 0.5
# A busy machine is slow; what waits for a frozen server waits for ever.
SLACK_SECONDS = 10.0


@pytest.fixture
def server(data_folder: Path) -> Iterator[EmbeddedPostgres]:
    """One server of this test's own, which it may break."""
    with EmbeddedPostgres(data_folder, fsync=False) as own:
        yield own


@pytest.fixture
async def pool(server: EmbeddedPostgres) -> AsyncIterator[Pool]:
    async with Pool(server.dsn, timeout_seconds=TIMEOUT_SECONDS, connections_max=4) as opened:
        yield opened


async def ask(pool: Pool) -> int:
    async with pool.connection() as connection:
        answer: int = await connection.fetchval("select 1")
        return answer


async def write(pool: Pool) -> None:
    async with pool.tx() as connection:
        await connection.execute("create table if not exists written (n int)")
        await connection.execute("insert into written values (1)")


async def violate(pool: Pool) -> None:
    async with pool.tx() as connection:
        await connection.execute("insert into written values (5)")
        await connection.execute("insert into instances (boot_id) values (gen_random_uuid())")


async def answers(pool: Pool) -> None:
    async with asyncio.timeout(15):
        while True:
            try:
                assert 1 == await ask(pool)
                return
            except StoreUnavailable:
                await asyncio.sleep(0.02)


async def refused_in_time(pool: Pool) -> None:
    start = time.monotonic()
    for use in (ask, write):
        with pytest.raises(StoreUnavailable):
            await use(pool)
    assert time.monotonic() - start < 2 * TIMEOUT_SECONDS + SLACK_SECONDS


async def test_a_frozen_store_is_unavailable_in_bounded_time_and_well_again_when_thawed(
    server: EmbeddedPostgres, pool: Pool
) -> None:
    await asyncio.gather(*(ask(pool) for _ in range(4)))
    with frozen(server):
        await refused_in_time(pool)
        await refused_in_time(pool)
    await answers(pool)
    await write(pool)


async def test_a_store_that_freezes_in_the_middle_of_a_tx_undoes_it(
    server: EmbeddedPostgres, pool: Pool
) -> None:
    async def freeze_between_two_writes() -> None:
        async with pool.tx() as connection:
            await connection.execute("insert into written values (2)")
            with frozen(server):
                await connection.execute("insert into written values (3)")

    await write(pool)
    with pytest.raises(StoreUnavailable):
        await freeze_between_two_writes()
    await answers(pool)
    async with pool.connection() as connection:
        assert 1 == await connection.fetchval("select count(*) from written")


async def test_more_callers_than_connections_are_all_answered_while_the_store_is_frozen(
    server: EmbeddedPostgres, pool: Pool
) -> None:
    with frozen(server):
        start = time.monotonic()
        results = await asyncio.gather(*(ask(pool) for _ in range(40)), return_exceptions=True)
        assert time.monotonic() - start < TIMEOUT_SECONDS + SLACK_SECONDS
    assert {StoreUnavailable} == {type(result) for result in results}
    await answers(pool)


async def test_a_restarted_store_serves_the_old_pool(open_folder: Path) -> None:
    server = EmbeddedPostgres(open_folder / "restarted")
    server.start()
    async with Pool(server.dsn, timeout_seconds=TIMEOUT_SECONDS) as pool:
        await ask(pool)
        server.stop()
        await refused_in_time(pool)
        with server:
            await answers(pool)
            await write(pool)


async def test_a_store_that_crashes_under_a_statement_is_unavailable_and_comes_back(
    server: EmbeddedPostgres, pool: Pool
) -> None:
    async with pool.connection() as connection:
        backend = await connection.fetchval("select pg_backend_pid()")
    os.kill(backend, signal.SIGKILL)
    await wait_until_async(lambda: not runs(backend))
    await answers(pool)


@pytest.mark.parametrize("small_disk", [150], indirect=True)
async def test_a_full_disk_is_unavailable_loses_nothing_and_is_forgotten_when_there_is_room(
    small_disk: Path,
) -> None:
    settings = {"max_wal_size": "32MB", "min_wal_size": "32MB", "shared_buffers": "16MB"}
    with EmbeddedPostgres(small_disk / "data", settings=settings) as server:
        async with Pool(server.dsn, timeout_seconds=5) as pool:
            await write(pool)
            async with pool.connection() as connection:
                # A fresh segment of the log, so that it is the table that finds no room.
                await connection.execute("select pg_switch_wal()")
            await write(pool)
            filler = small_disk / "filler"
            fill(filler)
            with pytest.raises(StoreUnavailable) as full:
                await write_much(pool)
            assert isinstance(full.value.__cause__, asyncpg.DiskFullError)

            filler.unlink()
            await answers(pool)
            await write(pool)
            async with pool.connection() as connection:
                assert 3 == await connection.fetchval("select count(*) from written")


def fill(path: Path) -> None:
    """Until nothing more goes onto the disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass


async def write_much(pool: Pool) -> None:
    async with pool.tx() as connection:
        await connection.execute("insert into written select n from generate_series(1, 60000) as n")


async def test_nobody_listening_is_unavailable(open_folder: Path) -> None:
    async with Pool(f"postgresql://a:b@/c?host={open_folder}", timeout_seconds=TIMEOUT_SECONDS) as pool:
        await refused_in_time(pool)
    with pytest.raises(StoreUnavailable):
        await connect(f"postgresql://a:b@/c?host={open_folder}")


async def test_a_listener_that_never_answers_is_unavailable(open_folder: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with Pool(f"postgresql://a:b@127.0.0.1:{port}/c", timeout_seconds=TIMEOUT_SECONDS) as pool:
        await refused_in_time(pool)
    listener.close()


async def test_a_pool_without_a_free_connection_gives_up_in_time(pool: Pool) -> None:
    async with pool.connection(5), pool.connection(5), pool.connection(5), pool.connection(5):
        await refused_in_time(pool)
    assert 1 == await ask(pool)


async def test_a_closed_pool_is_unavailable(pool: Pool) -> None:
    await pool.close()
    with pytest.raises(StoreUnavailable):
        await ask(pool)


async def test_a_statement_that_takes_too_long_is_given_up_and_not_left_running(pool: Pool) -> None:
    backends: list[int] = []

    async def sleep() -> None:
        async with pool.connection(0.1) as connection:
            backends.append(connection.get_server_pid())
            await connection.execute("select pg_sleep(60)")

    with pytest.raises(StoreUnavailable):
        await sleep()
    await wait_until_async(lambda: not runs(backends[0]), seconds=3)


async def test_a_cancelled_caller_costs_nobody_else_anything(pool: Pool) -> None:
    async def sleep() -> None:
        async with pool.connection(5) as connection:
            await connection.execute("select pg_sleep(60)")

    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(sleep())
        await asyncio.sleep(0)
        sleeper.cancel()
    assert [1] * 8 == await asyncio.gather(*(ask(pool) for _ in range(8)))


@pytest.mark.both_servers
async def test_a_violated_constraint_is_no_outage_and_undoes_the_tx(database: Database) -> None:
    async with Pool(database.dsn) as pool:
        await write(pool)
        async with pool.connection() as connection:
            backend = connection.get_server_pid()
        with pytest.raises(asyncpg.NotNullViolationError):
            await violate(pool)
        async with pool.connection() as connection:
            assert (1, backend) == (
                await connection.fetchval("select count(*) from written"),
                connection.get_server_pid(),
            )


async def test_a_tx_left_open_by_its_user_does_not_leak_to_the_next(database: Database) -> None:
    async with Pool(database.dsn, connections_max=1) as pool:
        async with pool.connection() as connection:
            await connection.execute("begin")
            await connection.execute("create table leaked ()")
        async with pool.connection() as connection:
            assert await connection.fetchval("select to_regclass('leaked') is null")


@pytest.mark.both_servers
async def test_sessions_are_bounded_and_durable(database: Database) -> None:
    names = ["synchronous_commit", "statement_timeout", "lock_timeout", "jit"]
    names += ["idle_in_transaction_session_timeout", "application_name", "plan_cache_mode"]
    async with Pool(database.dsn) as pool, pool.connection() as connection:
        found = [await connection.fetchval("select current_setting($1)", name) for name in names]
    assert ["on", "5s", "2s", "off", "5s", "placet", "auto"] == found

    pinned = await connect(database.dsn, ConnectionOptions(pinned_plans=True))
    assert ["off", "force_generic_plan"] == [
        await pinned.fetchval("select current_setting($1)", name)
        for name in ("enable_seqscan", "plan_cache_mode")
    ]
    await pinned.close()


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (asyncpg.AdminShutdownError("words"), Failure.UNAVAILABLE),
        (asyncpg.CannotConnectNowError("words"), Failure.UNAVAILABLE),
        (asyncpg.TooManyConnectionsError("words"), Failure.UNAVAILABLE),
        (asyncpg.DiskFullError("words"), Failure.UNAVAILABLE),
        (asyncpg.QueryCanceledError("words"), Failure.UNAVAILABLE),
        (asyncpg.ReadOnlySQLTransactionError("words"), Failure.UNAVAILABLE),
        (asyncpg.ConnectionDoesNotExistError("words"), Failure.UNAVAILABLE),
        (ConnectionResetError(), Failure.UNAVAILABLE),
        (FileNotFoundError(), Failure.UNAVAILABLE),
        (TimeoutError(), Failure.UNAVAILABLE),
        (asyncpg.DeadlockDetectedError("words"), Failure.CONTENDED),
        (asyncpg.SerializationError("words"), Failure.CONTENDED),
        (asyncpg.LockNotAvailableError("words"), Failure.CONTENDED),
        (asyncpg.UniqueViolationError("words"), Failure.OTHER),
        (asyncpg.UndefinedTableError("words"), Failure.OTHER),
        (asyncpg.InterfaceError("connection is closed"), Failure.OTHER),
        (ValueError("connection refused"), Failure.OTHER),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.name,
)
def test_failures_are_told_apart_by_type_and_state(error: Exception, meaning: Failure) -> None:
    assert meaning is classify(error)
    assert (meaning is not Failure.OTHER) == is_away(error)
