"""The Postgres of a run: durable, and of this run alone."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import asyncpg

from placet_server.embedded.server import EmbeddedPostgres
from placet_server.store.migrate import migrate

# Durability stays as it is by default; the rest is what one gives a Postgres of some size.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "300",
}
NAIVE_SCHEMA = """
create table naive_actions (
    id uuid primary key, key text not null unique, capability text not null, input text not null,
    state text not null, output text, create_time timestamptz not null default now(), settle_time timestamptz
);
create table naive_events (
    action_id uuid not null references naive_actions, sequence int not null, type text not null,
    create_time timestamptz not null default now(), primary key (action_id, sequence)
);
"""
SUCCEEDED = "SUCCEEDED"
_FSYNC_COUNT = 400
_PAGE = 8192


def start(folder: Path, programs: str, settings: Mapping[str, str] = SETTINGS) -> EmbeddedPostgres:
    postgres = EmbeddedPostgres(folder / "postgres", programs=programs, settings=settings)
    postgres.start()
    return postgres


async def create_database(dsn: str, name: str, *, migrated: bool = True) -> str:
    """The DSN of a new database: with Placet's tables, or with none."""
    admin = await asyncpg.connect(dsn)
    try:
        await admin.execute(f"create database {name}")
    finally:
        await admin.close()
    made = dsn.replace("/postgres?", f"/{name}?", 1)
    if migrated:
        await migrate(made)
    return made


async def create_naive_tables(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(NAIVE_SCHEMA)
    finally:
        await connection.close()


async def count_states(dsn: str, table: str) -> dict[str, int]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(f"select state, count(*) from {table} group by state")
    finally:
        await connection.close()
    return {row["state"]: row["count"] for row in rows}


async def describe(dsn: str) -> dict[str, str]:
    connection = await asyncpg.connect(dsn)
    try:
        found = {name: str(await connection.fetchval(f"show {name}")) for name in SETTINGS}
        found["server_version"] = str(await connection.fetchval("show server_version"))
        found["wal_sync_method"] = str(await connection.fetchval("show wal_sync_method"))
    finally:
        await connection.close()
    return found


def fdatasync_ms(folder: Path) -> float:
    """Median time to overwrite one page and sync it, on the file system of the data folder."""
    path = folder / "fsync-probe"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, bytes(16 * _PAGE), 0)
        os.fsync(descriptor)
        times = []
        for number in range(_FSYNC_COUNT):
            begin = time.perf_counter()
            os.pwrite(descriptor, bytes(_PAGE), number % 16 * _PAGE)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - begin)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times) * 1000
