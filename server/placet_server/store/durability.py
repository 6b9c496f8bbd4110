"""The durability class is declared by whoever starts the store, and believed only after asking Postgres."""

from __future__ import annotations

import asyncpg

from placet_server.model.durability import Durability, DurabilityClass, Replication
from placet_server.store import queries
from placet_server.store.connection import Connection, StoreUnfit

READ_SETTINGS = queries.load("durability")["read_settings"]

# Levels at which a commit is on this server's disk before it is acknowledged, once fsync is on.
FLUSHED = frozenset({"local", "remote_write", "on", "remote_apply"})
WAITING_FOR_STANDBY = FLUSHED - {"local"}


class DurabilityRefused(StoreUnfit):
    """The server loses acknowledged commits at a crash, and nobody asked for an ephemeral store."""

    def __init__(self, found: Durability) -> None:
        self.found = found
        super().__init__(
            f"{found.class_.name.lower()} was declared, but Postgres runs with "
            f"fsync={_switch(found.fsync)}, full_page_writes={_switch(found.full_page_writes)}, "
            f"synchronous_commit={found.synchronous_commit}: a crash loses what it acknowledged. "
            "Turn them on, or ask for an ephemeral store"
        )


async def verify_durability(connection: Connection, declared: DurabilityClass) -> Durability:
    """What the store really keeps. ``connection``: one opened as all others are.

    Raises DurabilityRefused if a durable class was declared for a server that is not.
    """
    row = await connection.fetchrow(READ_SETTINGS.sql)
    assert row is not None
    found = Durability(
        class_=declared,
        fsync=row["fsync"] == "on",
        full_page_writes=row["full_page_writes"] == "on",
        synchronous_commit=row["synchronous_commit"],
        replication=_replication(row),
    )
    if declared is not DurabilityClass.EPHEMERAL and not _survives_crash(found):
        raise DurabilityRefused(found)
    return found


def _survives_crash(found: Durability) -> bool:
    return found.fsync and found.full_page_writes and found.synchronous_commit in FLUSHED


def _replication(row: asyncpg.Record) -> Replication:
    if row["synchronous_standby_names"] and row["synchronous_commit"] in WAITING_FOR_STANDBY:
        return Replication.SYNC
    return Replication.ASYNC if row["standby_count"] > 0 else Replication.NONE


def _switch(on: bool) -> str:
    return "on" if on else "off"
