"""The rows of server boots: leases, and the one compare-and-set that lets a rescuer take what a boot held.

Every function takes a connection and ``now`` (None: the database's time), and leaves the tx to its caller.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from placet_server.store import queries
from placet_server.store.connection import Connection

LEASE_SECONDS_DEFAULT = 15.0

_SQL = queries.load("instance")
REGISTER, RENEW, RETIRE = _SQL["register"], _SQL["renew"], _SQL["retire"]
LIST_EXPIRED, MARK_DEAD, MARK_ALL_OTHERS_DEAD = (
    _SQL["list_expired"],
    _SQL["mark_dead"],
    _SQL["mark_all_others_dead"],
)
GET_STATE, NOTE_DRAIN = _SQL["get_state"], _SQL["note_drain"]
LIST_ALIVE, LIST_SERVED = _SQL["list_alive"], _SQL["list_served"]
_BEFORE_ALL = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One run of a server process. ``boot_id`` is a fresh UUID at every start.

    ``serves``: what it has handlers for, as capability@version. ``queue_slots``: how much of that it takes from queues
    at once; 0: nothing.
    """

    boot_id: str
    host: str
    pid: int
    version: str
    lease_seconds: float = LEASE_SECONDS_DEFAULT
    serves: tuple[str, ...] = ()
    queue_slots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredBoot:
    """A boot whose lease has run out; it may only be slow. ``heartbeat_time`` is what the CAS compares."""

    boot_id: str
    host: str
    pid: int
    lease_seconds: float
    heartbeat_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A boot that nobody has declared dead. ``is_silent``: its lease has run out, so it may be gone.

    ``is_draining``: it begins nothing more.
    """

    boot: Boot
    started_time_us: int
    heartbeat_time_us: int
    is_draining: bool
    is_silent: bool


def this_boot(version: str, lease_seconds: float = LEASE_SECONDS_DEFAULT) -> Boot:
    """A new identity for this process: call it once, and again after a fork."""
    return Boot(
        boot_id=str(uuid4()),
        host=socket.gethostname()[:255] or "localhost",
        pid=os.getpid(),
        version=version,
        lease_seconds=lease_seconds,
    )


async def register(connection: Connection, boot: Boot, *, now: datetime | None = None) -> None:
    """Record the boot as alive. Before anything refers to it, and before the first heartbeat."""
    arguments = REGISTER.arguments(
        boot_id=boot.boot_id,
        host=boot.host,
        pid=boot.pid,
        version=boot.version,
        lease_seconds=boot.lease_seconds,
        serves=list(boot.serves),
        queue_slots=boot.queue_slots,
        now=now,
    )
    await connection.execute(REGISTER.sql, *arguments)


async def renew(connection: Connection, boot_id: str, *, now: datetime | None = None) -> bool:
    """Extend the lease. False: the boot is dead or unknown, and must not start anything more."""
    return await connection.fetchval(RENEW.sql, *RENEW.arguments(boot_id=boot_id, now=now)) is not None


async def note_drain(connection: Connection, boot_id: str, *, now: datetime | None = None) -> None:
    """For others to see; the boot itself begins nothing more already."""
    await connection.execute(NOTE_DRAIN.sql, *NOTE_DRAIN.arguments(boot_id=boot_id, now=now))


async def retire(connection: Connection, boot_id: str, *, now: datetime | None = None) -> None:
    """Give up the lease at a clean stop, so that nobody waits for it to expire."""
    await connection.execute(RETIRE.sql, *RETIRE.arguments(boot_id=boot_id, now=now))


async def list_expired(
    connection: Connection, *, count_max: int = 100, now: datetime | None = None
) -> list[ExpiredBoot]:
    """Boots that have not renewed in time, longest gone first."""
    rows = await connection.fetch(LIST_EXPIRED.sql, *LIST_EXPIRED.arguments(count_max=count_max, now=now))
    return [
        ExpiredBoot(
            boot_id=str(row["boot_id"]),
            host=row["host"],
            pid=row["pid"],
            lease_seconds=row["lease_seconds"],
            heartbeat_time=row["heartbeat_time"],
        )
        for row in rows
    ]


async def mark_dead_cas(
    connection: Connection,
    boot_id: str,
    observed_heartbeat_time: datetime,
    *,
    now: datetime | None = None,
) -> bool:
    """Win the right to rescue an expired boot. True for one caller only, and never once the boot has renewed.

    Locks the instance row until the tx ends: first in the lock order.
    """
    arguments = MARK_DEAD.arguments(boot_id=boot_id, observed_heartbeat_time=observed_heartbeat_time, now=now)
    return await connection.fetchval(MARK_DEAD.sql, *arguments) is not None


async def mark_all_others_dead(
    connection: Connection, own_boot_ids: Collection[str], *, now: datetime | None = None
) -> list[str]:
    """Declare every boot but one's own dead at once, expired or not.

    Only for the owner of a data folder: its lock proves that no other process can still be at work on it.
    ``own_boot_ids``: of all processes under that lock. Returns the ids that were alive.
    """
    arguments = MARK_ALL_OTHERS_DEAD.arguments(boot_ids=list(own_boot_ids), now=now)
    rows = await connection.fetch(MARK_ALL_OTHERS_DEAD.sql, *arguments)
    return [str(row["boot_id"]) for row in rows]


async def is_alive(connection: Connection, boot_id: str) -> bool:
    """Whether the boot holds its lease as far as the store says; expired but unrescued counts as alive."""
    state: str | None = await connection.fetchval(GET_STATE.sql, *GET_STATE.arguments(boot_id=boot_id))
    return state == "ALIVE"


async def list_alive(
    connection: Connection, *, after: str, count_max: int, now: datetime | None = None
) -> list[Server]:
    """In the order of their ids, after one of them; "": from the first on."""
    arguments = LIST_ALIVE.arguments(after=after or _BEFORE_ALL, count_max=count_max, now=now)
    return [
        Server(
            boot=Boot(
                boot_id=str(row["boot_id"]),
                host=row["host"],
                pid=row["pid"],
                version=row["version"],
                lease_seconds=row["lease_seconds"],
                serves=tuple(row["serves"]),
                queue_slots=row["queue_slots"],
            ),
            started_time_us=row["started_time_us"],
            heartbeat_time_us=row["heartbeat_time_us"],
            is_draining=row["draining"],
            is_silent=row["silent"],
        )
        for row in await connection.fetch(LIST_ALIVE.sql, *arguments)
    ]


async def list_served(connection: Connection) -> frozenset[str]:
    """What some living boot takes from queues, as capability@version."""
    return frozenset(row["served"] for row in await connection.fetch(LIST_SERVED.sql))
