"""Fresh databases on one Postgres that this process starts at first use and takes along when it ends."""

from __future__ import annotations

import asyncio
import atexit
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placet_server.embedded.server import EmbeddedPostgres

TEMPLATE = "placet_testing"
# Small and quick to start, yet as durable as a server insists on.
POSTGRES_SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "100",
    "max_wal_size": "256MB",
    "full_page_writes": "on",
}


@asynccontextmanager
async def database() -> AsyncIterator[str]:
    """The DSN of a fresh, migrated database on this process's own Postgres; dropped at the end."""
    admin = await asyncio.to_thread(_cluster.admin_dsn)
    name = f"placet_{uuid.uuid4().hex}"
    await _administer(admin, f"create database {name} template {TEMPLATE}")
    try:
        yield _dsn_of(admin, name)
    finally:
        await _administer(admin, f"drop database if exists {name} with (force)")


class _Cluster:
    """The one Postgres of this process: started at first use, ended with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._postgres: EmbeddedPostgres | None = None

    def admin_dsn(self) -> str:
        with self._lock:
            if self._postgres is None:
                self._postgres = self._started()
            return self._postgres.dsn

    def _started(self) -> EmbeddedPostgres:
        from placet_server.embedded.server import EmbeddedPostgres
        from placet_server.store.migrate import migrate

        postgres = EmbeddedPostgres(fsync=True, settings=POSTGRES_SETTINGS)
        postgres.start()
        atexit.register(postgres.stop)
        asyncio.run(_administer(postgres.dsn, f"create database {TEMPLATE}"))
        asyncio.run(migrate(_dsn_of(postgres.dsn, TEMPLATE)))
        return postgres


async def _administer(dsn: str, statement: str) -> None:
    from placet_server.store.session import SessionOptions, connect

    connection = await connect(
        dsn, SessionOptions(application_name="placet-testing", statement_timeout_seconds=60.0)
    )
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _dsn_of(admin_dsn: str, name: str) -> str:
    return admin_dsn.replace("/postgres?", f"/{name}?", 1)


_cluster = _Cluster()
