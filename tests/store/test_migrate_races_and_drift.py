"""Two processes migrate at once; schemas are older, newer or other than this release; servers and poolers are unfit."""

import asyncio
import hashlib
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from placet_server.store.connection import AddressUnreadable
from placet_server.store.migrate import (
    LOCK_KEY,
    MIGRATIONS_FOLDER,
    MigrationBusy,
    MigrationChanged,
    PoolerRefused,
    PostgresTooOld,
    RoleRefused,
    SchemaBehind,
    SchemaTooNew,
    find_migrations,
    migrate,
    require_server,
    status,
    validate,
)
from tests.postgres import Database
from tests.store.transaction_pooler import transaction_pooler

FIRST = "-- expand\ncreate table first (n int);\n"
SECOND = "-- expand\ncreate table second (n int); insert into second values (1);\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text(FIRST)
    (tmp_path / "0002_second.sql").write_text(SECOND)
    return tmp_path


async def fetch(database: Database, sql: str) -> object:
    connection = await asyncpg.connect(database.dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def record(database: Database, version: int, kind: str) -> None:
    checksum = hashlib.sha256(b"of a later release").hexdigest()
    sql = f"insert into schema_migrations values ({version}, 'later', '{kind}', '{checksum}')"
    await fetch(database, sql)


@pytest.mark.both_servers
async def test_the_schema_of_this_release_is_applied_once(empty_database: Database) -> None:
    with pytest.raises(SchemaBehind):
        await validate(empty_database.dsn)
    await migrate(empty_database.dsn)
    again = await migrate(empty_database.dsn)
    assert (find_migrations(), (), ()) == (again.applied, again.pending, again.unknown)
    assert again == await validate(empty_database.dsn)


@pytest.mark.both_servers
async def test_many_migrators_at_once_apply_each_version_once(empty_database: Database, folder: Path) -> None:
    results = await asyncio.gather(*(migrate(empty_database.dsn, folder=folder) for _ in range(5)))
    assert {2} == {len(result.applied) for result in results}
    assert 1 == await fetch(empty_database, "select count(*) from second")


def test_two_processes_that_start_at_once_both_find_the_schema(empty_database: Database) -> None:
    code = "import asyncio, sys; from placet_server.store.migrate import migrate; asyncio.run(migrate(sys.argv[1]))"
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path}; {code}", empty_database.dsn]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [0, 0] == [process.wait(60) for process in processes]


async def test_a_migrator_that_hangs_makes_the_next_one_give_up(
    empty_database: Database, folder: Path
) -> None:
    holder = await asyncpg.connect(empty_database.dsn)
    await holder.execute(f"select pg_advisory_lock({LOCK_KEY})")
    with pytest.raises(MigrationBusy):
        await migrate(empty_database.dsn, lock_timeout_seconds=0.1, folder=folder)
    await holder.close()
    await migrate(empty_database.dsn, folder=folder)


async def test_a_migration_that_fails_leaves_the_version_before_it(
    empty_database: Database, folder: Path
) -> None:
    (folder / "0002_second.sql").write_text(SECOND + "select 1 / 0;\n")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(empty_database.dsn, folder=folder)
    assert [1] == [done.version for done in (await status(empty_database.dsn, folder=folder)).applied]
    assert await fetch(empty_database, "select to_regclass('second') is null")

    (folder / "0002_second.sql").write_text(SECOND)
    assert 2 == len((await migrate(empty_database.dsn, folder=folder)).applied)


async def test_an_applied_migration_that_was_edited_is_refused(
    empty_database: Database, folder: Path
) -> None:
    await migrate(empty_database.dsn, folder=folder)
    (folder / "0001_first.sql").write_text(FIRST + "-- edited\n")
    for call in (migrate, validate, status):
        with pytest.raises(MigrationChanged) as refused:
            await call(empty_database.dsn, folder=folder)
        assert 1 == refused.value.recorded.version


async def test_a_schema_that_a_newer_release_has_contracted_is_refused(database: Database) -> None:
    version = len(find_migrations()) + 1
    await record(database, version, "expand")
    await record(database, version + 1, "contract")
    for call in (migrate, validate, status):
        with pytest.raises(SchemaTooNew) as refused:
            await call(database.dsn)
        assert [version, version + 1] == [unknown.version for unknown in refused.value.unknown]


async def test_a_schema_that_a_newer_release_has_expanded_still_serves_the_old_one(
    database: Database,
) -> None:
    version = len(find_migrations()) + 1
    await record(database, version, "expand")
    assert [version] == [unknown.version for unknown in (await validate(database.dsn)).unknown]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("0003_third.sql", "create table third ();\n"),
        ("0003_third.sql", "-- shrink\ncreate table third ();\n"),
        ("0004_gap.sql", "-- expand\n"),
        ("0002_again.sql", "-- expand\n"),
        ("third.sql", "-- expand\n"),
    ],
)
def test_a_file_that_breaks_the_rules_is_refused(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(ValueError, match=r"numbered|named"):
        find_migrations(folder)


def test_the_files_of_this_release_keep_the_rules() -> None:
    assert len(list(MIGRATIONS_FOLDER.glob("*"))) == len(find_migrations())


@pytest.mark.both_servers
async def test_a_real_server_is_no_pooler(database: Database) -> None:
    await require_server(database.dsn)


@pytest.mark.parametrize("rotate", [False, True], ids=["last used first", "in turn"])
async def test_a_transaction_mode_pooler_is_refused(database: Database, rotate: bool) -> None:
    async with transaction_pooler(database.dsn, rotate=rotate) as pooled_dsn:
        for call in (require_server, validate, migrate):
            with pytest.raises(PoolerRefused):
                await call(pooled_dsn)


async def test_an_old_postgres_is_refused(database: Database) -> None:
    async with transaction_pooler(database.dsn, rotate=False, server_version="14.9") as dsn:
        with pytest.raises(PostgresTooOld, match=r"14\.9"):
            await require_server(dsn)


async def test_a_role_that_owns_nothing_is_told_what_it_needs(empty_database: Database) -> None:
    role = f"guest_{empty_database.name}"
    await fetch(empty_database, f"create role {role}")
    try:
        as_guest = f"{empty_database.dsn}&options=-c%20role={role}"
        with pytest.raises(RoleRefused, match=r"permission denied.*create database NAME owner ROLE"):
            await migrate(as_guest)
    finally:
        await fetch(empty_database, f"drop role {role}")


@pytest.mark.parametrize(
    "dsn",
    [
        "127.0.0.1:5432/placet",
        "placet:hunter2@127.0.0.1/placet",
        "postgresql://placet:hunter2/x@127.0.0.1/placet",
        "postgresql://placet:hunter2#x@127.0.0.1/placet",
        "postgresql://placet:hunter2[x@127.0.0.1/placet",
        "postgresql://placet:hunter2@127.0.0.1:99999/placet",
        "postgresql://placet:hunter2@127.0.0.1/placet?sslmode=perhaps",
    ],
)
async def test_what_is_no_address_is_told_as_that_without_its_password(dsn: str) -> None:
    for call in (migrate, status, validate):
        with pytest.raises(AddressUnreadable, match=r"postgresql://USER:PASSWORD@HOST") as raised:
            await call(dsn)
        assert "hunter2" not in str(raised.value)
