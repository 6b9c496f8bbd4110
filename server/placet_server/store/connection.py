"""One connection to Postgres: how it is opened and configured, and what its failures mean."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

import asyncpg

from placet_server.model.errors import StoreUnavailable
from placet_server.store import queries
from placet_server.store.driver import DriverConnection

SQL = queries.load("connection")
CONFIGURE = SQL["configure"]

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

ANSWER_SECONDS = 2.0
TCP_USER_TIMEOUT_SECONDS = 5
CLIENT_CHECK_SECONDS = 1
# One plan for the life of the connection, and always by index: a plan made while a table is empty would
# otherwise scan it.
PINNED_PLANS = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What bounds a connection, in seconds. ``pinned_plans`` is for the writer of batches."""

    application_name: str = "placet"
    connect_timeout_seconds: float = 2.0
    statement_timeout_seconds: float = 5.0
    lock_timeout_seconds: float = 2.0
    idle_in_transaction_timeout_seconds: float = 5.0
    pinned_plans: bool = False

    def settings(self) -> dict[str, str]:
        """The parameters of its session by their Postgres names."""
        return {
            "application_name": self.application_name,
            "synchronous_commit": "on",
            "jit": "off",
            # Every large table is read by key. A plan that was kept from when it was small would scan it.
            "enable_seqscan": "off",
            "timezone": "UTC",
            "statement_timeout": _milliseconds(self.statement_timeout_seconds),
            "lock_timeout": _milliseconds(self.lock_timeout_seconds),
            "idle_in_transaction_session_timeout": _milliseconds(self.idle_in_transaction_timeout_seconds),
            # What a caller that is gone had asked for ends, too.
            "client_connection_check_interval": _milliseconds(CLIENT_CHECK_SECONDS),
            "tcp_keepalives_idle": "5",
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": _milliseconds(TCP_USER_TIMEOUT_SECONDS),
            **(PINNED_PLANS if self.pinned_plans else {}),
        }


class ServerProcess(NamedTuple):
    """Which one of Postgres carries out what a connection is sent. Numbers come again, with another start."""

    pid: int
    started: datetime


class StoreUnfit(Exception):
    """A database that this release must not run on. Raised at start only; the text is for the operator."""


class AddressUnreadable(StoreUnfit):
    """Without the driver's words: they may have a part of the password."""

    def __init__(self) -> None:
        super().__init__(
            "the DSN is no address of a Postgres: postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full; "
            "what is special in a password is escaped, as %40 for @, %2F for / and %23 for #"
        )


class Failure(Enum):
    """What an exception from a connection means to its caller."""

    UNAVAILABLE = auto()  # The store did not answer, or cannot: nothing is known of the statement.
    CONTENDED = auto()  # Deadlock, serialization, lock timeout: the tx is undone, trying again is right.
    OTHER = auto()  # Violated constraints, faulty SQL, and what is no database error at all.


async def connect(dsn: str, options: ConnectionOptions | None = None) -> Connection:
    """A configured connection, outside any pool.

    Raises StoreUnavailable within ``connect_timeout_seconds``, and AddressUnreadable. The caller closes it, or
    terminates it after a failure.
    """
    try:
        return await open_connection(dsn, options or ConnectionOptions())
    except (ValueError, OverflowError):
        raise AddressUnreadable from None
    except Exception as error:
        if not is_away(error):
            raise
        raise away(error) from error


async def open_connection(dsn: str, options: ConnectionOptions) -> Connection:
    """Like ``connect``, with the driver's own exceptions."""
    async with asyncio.timeout(options.connect_timeout_seconds):
        connection: Connection = await asyncpg.connect(
            dsn, timeout=options.connect_timeout_seconds, connection_class=DriverConnection
        )
        try:
            await connection.execute(CONFIGURE.sql, json.dumps(options.settings()))
        except asyncpg.InterfaceError as error:
            # Who asked for the connection never had it, and could not tell that this means its end.
            lost = connection.is_closed()
            connection.terminate()
            if lost:
                raise ConnectionResetError(str(error)) from error
            raise
        except BaseException:
            connection.terminate()
            raise
    return connection


async def identify(connection: Connection) -> ServerProcess:
    """Of this very connection, behind a pooler, too."""
    query = SQL["identify"]
    r = await connection.fetchrow(query.sql, *query.arguments(), timeout=ANSWER_SECONDS)
    assert r is not None, "a connection is one of the server's"
    return ServerProcess(*r)


async def end_process(connection: Connection, process: ServerProcess, seconds: float) -> bool:
    """Whatever it is at is undone, unless it was committed. True: it is gone, or was not there."""
    query = SQL["end_process"]
    arguments = query.arguments(
        pid=process.pid, started=process.started, wait_milliseconds=round(seconds * 1000)
    )
    return bool(await connection.fetchval(query.sql, *arguments, timeout=seconds + ANSWER_SECONDS))


def classify(error: BaseException, connection: Connection | None = None) -> Failure:
    """By type and SQLSTATE, never by text. ``connection``: the one it came from, if known."""
    if isinstance(error, asyncpg.PostgresError):
        return _classify_state(error.sqlstate or "")
    if isinstance(error, (OSError, StoreUnavailable)):  # Timeouts, too.
        return Failure.UNAVAILABLE
    # The driver lost its thread: mostly a server that said goodbye on an idle connection and has not closed it yet.
    if isinstance(error, asyncpg.InternalClientError):
        return Failure.UNAVAILABLE
    if isinstance(error, asyncpg.InterfaceError) and connection is not None and connection.is_closed():
        return Failure.UNAVAILABLE
    return Failure.OTHER


def is_away(error: Exception, connection: Connection | None = None) -> bool:
    """Whether trying again is right, and nobody has said so yet; anything else passes as it is."""
    return not isinstance(error, StoreUnavailable) and classify(error, connection) is not Failure.OTHER


def away(error: Exception) -> StoreUnavailable:
    """Of what `is_away`."""
    return StoreUnavailable(detail=f"{type(error).__name__}: {error}")


def _classify_state(state: str) -> Failure:
    if state in ("40001", "40P01", "55P03"):
        return Failure.CONTENDED
    # 08 connection, 28 authorization, 3D no such database, 53 resources (disk full, too many clients), 57
    # operator intervention (shutdown, restart, statement timeout), 58 system; a read-only server (after a
    # failover); 25P03 and 25P04 ended the session.
    if state[:2] in ("08", "28", "3D", "53", "57", "58") or state in ("25006", "25P03", "25P04"):
        return Failure.UNAVAILABLE
    return Failure.OTHER


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)) if seconds > 0 else 0)
