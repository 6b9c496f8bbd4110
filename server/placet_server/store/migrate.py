"""The schema, version by version: numbered SQL files, forward only, one process at a time.

A file is ``store/migrations/NNNN_what.sql`` and begins with ``-- expand`` (the previous release still runs
on the result) or ``-- contract`` (it no longer does). Each runs in a tx of its own, together with the
record of it. A schema that is ahead of this release by expanding migrations only is accepted, so that the
old replicas of a rolling upgrade may restart; one that is ahead by a contracting one is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg

from placet_server.store import queries
from placet_server.store.connection import (
    Connection,
    ConnectionOptions,
    StoreUnfit,
    away,
    connect,
    is_away,
)

MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"
MAJOR_MIN = 15
LOCK_KEY = 0x706C61636574  # "placet" in ASCII.
ANSWER_TIMEOUT_SECONDS = 5.0

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_SQL = queries.load("migrate")
_CONNECTION = queries.load("connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema, as recorded in the database or as found among the files."""

    version: int
    name: str
    kind: str
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """Where a database stands: what this release would still apply, and what it does not know."""

    applied: tuple[Migration, ...]
    pending: tuple[Migration, ...]
    unknown: tuple[Migration, ...]


class PostgresTooOld(StoreUnfit):
    def __init__(self, version: str) -> None:
        self.version = version
        super().__init__(f"this is PostgreSQL {version}; {MAJOR_MIN} or newer is needed")


class PoolerRefused(StoreUnfit):
    def __init__(self) -> None:
        super().__init__(
            "a pooler between here and Postgres changes the session from one statement to the next; "
            "connect to Postgres itself, or use session mode"
        )


class RoleRefused(StoreUnfit):
    def __init__(self, refusal: str) -> None:
        super().__init__(
            f"{refusal}; the role of the DSN needs to own what it works in: create database NAME owner ROLE"
        )


class SchemaBehind(StoreUnfit):
    def __init__(self, pending: tuple[Migration, ...]) -> None:
        self.pending = pending
        super().__init__(f"the schema lacks {_list(pending)}; run `placet migrate`")


class SchemaTooNew(StoreUnfit):
    def __init__(self, unknown: tuple[Migration, ...]) -> None:
        self.unknown = unknown
        super().__init__(f"a newer release has changed the schema by {_list(unknown)}; run that release")


class MigrationBusy(StoreUnfit):
    def __init__(self, waited_seconds: float) -> None:
        self.waited_seconds = waited_seconds
        super().__init__(f"another process has been migrating for {waited_seconds:g} seconds; try again")


class MigrationChanged(StoreUnfit):
    def __init__(self, recorded: Migration, found: Migration) -> None:
        self.recorded = recorded
        self.found = found
        super().__init__(
            f"migration {recorded.version:04} was applied as {recorded.name} ({recorded.checksum[:12]}), "
            f"and is {found.name} ({found.checksum[:12]}) in this release; applied migrations never change"
        )


async def migrate(
    dsn: str, *, lock_timeout_seconds: float = 60.0, folder: Path = MIGRATIONS_FOLDER
) -> SchemaStatus:
    """Apply what is missing. Safe to run by any number of processes at once.

    Raises StoreUnfit, StoreUnavailable, and Postgres' own errors for a migration that fails, which leaves
    the schema at the version before it.
    """
    await require_server(dsn)
    # Its end ends the lock.
    async with _cut_at_the_end(await _connect(dsn, lock_timeout_seconds)) as connection:
        await _lock(connection, lock_timeout_seconds)
        await connection.execute(_SQL["create_table"].sql)
        known = find_migrations(folder)
        for migration in (await _compare(connection, known)).pending:
            await _apply(connection, migration, folder)
        compared = await _compare(connection, known)
        await _open_feed_epoch(connection)
        return compared


async def status(dsn: str, *, folder: Path = MIGRATIONS_FOLDER) -> SchemaStatus:
    """Compare, changing nothing. Raises SchemaTooNew, MigrationChanged, StoreUnavailable."""
    async with (
        _cut_at_the_end(await _connect(dsn, lock_timeout_seconds=5.0)) as connection,
        asyncio.timeout(ANSWER_TIMEOUT_SECONDS),
    ):
        return await _compare(connection, find_migrations(folder))


async def validate(dsn: str, *, folder: Path = MIGRATIONS_FOLDER) -> SchemaStatus:
    """Make sure that this release can run on this database. Raises StoreUnfit, StoreUnavailable."""
    await require_server(dsn)
    found = await status(dsn, folder=folder)
    if found.pending:
        raise SchemaBehind(found.pending)
    async with _cut_at_the_end(
        await _connect(dsn, lock_timeout_seconds=ANSWER_TIMEOUT_SECONDS)
    ) as connection:
        await _open_feed_epoch(connection)
    return found


async def require_server(dsn: str) -> None:
    """Raises PostgresTooOld, PoolerRefused, StoreUnavailable."""
    async with _cut_at_the_end(await connect(dsn)) as first:
        version = first.get_server_version()
        if version.major < MAJOR_MIN:
            raise PostgresTooOld(f"{version.major}.{version.micro}")
        async with _cut_at_the_end(await connect(dsn)) as second:
            await _require_own_sessions(first, second)


def find_migrations(folder: Path = MIGRATIONS_FOLDER) -> tuple[Migration, ...]:
    """The migrations of this release, in order. Raises ValueError if a file breaks the rules."""
    found = tuple(_read(path) for path in sorted(folder.glob("*.sql")))
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations are numbered from 1 without gaps, not {_list(found)}")
    return found


def _read(path: Path) -> Migration:
    named = _FILE.fullmatch(path.name)
    text = path.read_text(encoding="utf-8")
    kind = text.partition("\n")[0].removeprefix("-- ").strip()
    if named is None or kind not in ("expand", "contract"):
        raise ValueError(f"{path.name}: named NNNN_what.sql, headed by `-- expand` or `-- contract`")
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return Migration(version=int(named[1]), name=named[2], kind=kind, checksum=checksum)


async def _lock(connection: Connection, timeout_seconds: float) -> None:
    try:
        await connection.execute(_SQL["lock"].sql, LOCK_KEY)
    except asyncpg.LockNotAvailableError as error:
        raise MigrationBusy(timeout_seconds) from error


async def _apply(connection: Connection, migration: Migration, folder: Path) -> None:
    text = (folder / f"{migration.version:04}_{migration.name}.sql").read_text(encoding="utf-8")
    record = _SQL["record"]
    async with connection.transaction():
        await connection.execute(text)
        await connection.execute(
            record.sql,
            *record.arguments(
                version=migration.version,
                name=migration.name,
                kind=migration.kind,
                checksum=migration.checksum,
            ),
        )


async def _open_feed_epoch(connection: Connection) -> None:
    """Whoever starts sees to it, as a database may be restored, or its standby promoted, between any two starts."""
    if await connection.fetchval(_SQL["feed_exists"].sql):
        await connection.execute(_SQL["open_feed_epoch"].sql)


async def _compare(connection: Connection, known: tuple[Migration, ...]) -> SchemaStatus:
    applied: tuple[Migration, ...] = ()
    if await connection.fetchval(_SQL["table_exists"].sql):
        rows = await connection.fetch(_SQL["list_applied"].sql)
        applied = tuple(Migration(**dict(row)) for row in rows)
    for recorded, found in zip(applied, known, strict=False):
        if recorded != found:
            raise MigrationChanged(recorded, found)
    unknown = applied[len(known) :]
    if any(migration.kind == "contract" for migration in unknown):
        raise SchemaTooNew(unknown)
    return SchemaStatus(applied=applied, pending=known[len(applied) :], unknown=unknown)


async def _require_own_sessions(first: Connection, second: Connection) -> None:
    """Two real sessions keep their server process and what is set in them; behind a pooler they trade both.

    The second holds a tx open meanwhile, so that a pooler must give the first another server process,
    unless it has given the first one's to the second.
    """
    mark = uuid4().hex
    _, first_process = _pair(await first.fetchrow(_CONNECTION["mark"].sql, mark))
    async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
        await second.transaction().start()  # Never ended: its connection is cut.
        seen_mark, second_process = _pair(await second.fetchrow(_CONNECTION["read_mark"].sql))
        if seen_mark == mark or second_process == first_process:
            raise PoolerRefused
        if _pair(await first.fetchrow(_CONNECTION["read_mark"].sql)) != (mark, first_process):
            raise PoolerRefused


def _pair(row: asyncpg.Record | None) -> tuple[str | None, int]:
    assert row is not None
    return row[0], row[1]


@asynccontextmanager
async def _cut_at_the_end(connection: Connection) -> AsyncIterator[Connection]:
    """Raises StoreUnavailable for what means that the store is away, RoleRefused for what its role may not do."""
    try:
        yield connection
    except asyncpg.InsufficientPrivilegeError as error:
        raise RoleRefused(str(error)) from error
    except Exception as error:
        if not is_away(error, connection):
            raise
        raise away(error) from error
    finally:
        connection.terminate()


async def _connect(dsn: str, lock_timeout_seconds: float) -> Connection:
    options = ConnectionOptions(
        application_name="placet migrate",
        statement_timeout_seconds=0,
        lock_timeout_seconds=lock_timeout_seconds,
        idle_in_transaction_timeout_seconds=60.0,
    )
    return await connect(dsn, options)


def _list(migrations: tuple[Migration, ...]) -> str:
    return ", ".join(f"{migration.version:04}_{migration.name}" for migration in migrations)
