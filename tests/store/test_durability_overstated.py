"""A store that would lose acknowledged commits is never called durable; health is a write that happened."""

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from placet_server.embedded.server import EmbeddedPostgres
from placet_server.model.durability import Durability, DurabilityClass, Replication
from placet_server.model.errors import StoreUnavailable
from placet_server.store.connection import connect
from placet_server.store.durability import DurabilityRefused, verify_durability
from placet_server.store.health import probe_store
from placet_server.store.instance import register, this_boot
from placet_server.store.pool import Pool
from tests.postgres import Database

DURABLE = [DurabilityClass.DURABLE_SINGLE_PROCESS, DurabilityClass.DURABLE_SHARED]


@pytest.fixture(scope="module")
def durable_server() -> Iterator[EmbeddedPostgres]:
    """fsync on, without the wait for a disk: no test here commits much."""
    with EmbeddedPostgres(fsync=True, settings={"full_page_writes": "on", "wal_level": "replica"}) as server:
        yield server


@pytest.mark.parametrize("declared", DURABLE)
async def test_a_server_that_keeps_commits_is_durable(
    durable_server: EmbeddedPostgres, declared: DurabilityClass
) -> None:
    connection = await connect(durable_server.dsn)
    assert await verify_durability(connection, declared) == Durability(
        class_=declared,
        fsync=True,
        full_page_writes=True,
        synchronous_commit="on",
        replication=Replication.NONE,
    )
    await connection.close()


@pytest.mark.both_servers
@pytest.mark.parametrize("declared", DURABLE)
async def test_a_server_without_fsync_is_never_durable(database: Database, declared: DurabilityClass) -> None:
    connection = await connect(database.dsn)
    with pytest.raises(DurabilityRefused, match="fsync=off"):
        await verify_durability(connection, declared)
    found = await verify_durability(connection, DurabilityClass.EPHEMERAL)
    assert (DurabilityClass.EPHEMERAL, False) == (found.class_, found.fsync)
    await connection.close()


async def test_a_server_with_torn_pages_is_never_durable() -> None:
    with EmbeddedPostgres(fsync=True) as server:
        connection = await connect(server.dsn)
        with pytest.raises(DurabilityRefused, match="full_page_writes=off"):
            await verify_durability(connection, DurabilityClass.DURABLE_SHARED)
        await connection.close()


async def test_a_session_that_does_not_wait_for_the_disk_is_never_durable(
    durable_server: EmbeddedPostgres,
) -> None:
    connection = await connect(durable_server.dsn)
    await connection.execute("set synchronous_commit = off")
    with pytest.raises(DurabilityRefused, match="synchronous_commit=off"):
        await verify_durability(connection, DurabilityClass.DURABLE_SHARED)
    await connection.close()


async def test_a_role_that_turns_synchronous_commit_off_does_not_reach_our_sessions(
    database: Database,
) -> None:
    plain = await asyncpg.connect(database.dsn)
    await plain.execute(f"alter database {database.name} set synchronous_commit = off")
    await plain.close()
    connection = await connect(database.dsn)
    assert "on" == await connection.fetchval("show synchronous_commit")
    await connection.close()


async def test_commits_that_wait_for_a_standby_are_declared_so(durable_server: EmbeddedPostgres) -> None:
    admin = await connect(durable_server.dsn)
    await admin.execute("set synchronous_commit = local")
    await admin.execute("alter system set synchronous_standby_names = 'any 1 (*)'")
    await admin.execute("select pg_reload_conf()")
    found: list[Replication] = []
    for _ in range(500):
        connection = await connect(durable_server.dsn)
        durability = await verify_durability(connection, DurabilityClass.DURABLE_SHARED)
        found.append(durability.replication)
        connection.terminate()
        if found[-1] is Replication.SYNC:
            break
    await admin.execute("alter system reset synchronous_standby_names")
    await admin.execute("select pg_reload_conf()")
    await admin.close()
    assert Replication.SYNC is found[-1]


@pytest.mark.parametrize("required", list(DurabilityClass))
def test_a_higher_class_keeps_what_a_lower_one_does(required: DurabilityClass) -> None:
    keeping = [offered for offered in DurabilityClass if offered.keeps(required)]
    assert keeping == list(DurabilityClass)[required - 1 :]


async def test_health_is_a_write_that_happened(database: Database, open_folder: Path) -> None:
    boot = this_boot("1")
    async with Pool(database.dsn) as pool:
        async with pool.connection() as connection:
            await register(connection, boot)
        await probe_store(pool, boot.boot_id)
        async with pool.connection() as connection:
            assert await connection.fetchval("select probe_time is not null from instances")


async def test_a_server_that_reads_but_takes_no_writes_is_not_healthy(database: Database) -> None:
    boot = this_boot("1")
    async with Pool(database.dsn) as pool, pool.connection() as connection:
        await register(connection, boot)
        await connection.execute(f"alter database {database.name} set default_transaction_read_only = on")
    async with Pool(database.dsn) as pool:
        with pytest.raises(StoreUnavailable):
            await probe_store(pool, boot.boot_id)


async def test_a_store_that_was_replaced_by_another_is_not_healthy(database: Database) -> None:
    async with Pool(database.dsn) as pool:
        with pytest.raises(StoreUnavailable):
            await probe_store(pool, this_boot("1").boot_id)
