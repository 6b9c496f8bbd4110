"""Fresh databases on one Postgres that this process starts at first use and takes along when it ends."""

from __future__ import annotations

import asyncio
import atexit
import subprocess
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

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
    name = f"placet_{uuid.uuid4().hex}"
    dsn = await asyncio.to_thread(_cluster.create, name)
    try:
        yield dsn
    finally:
        await asyncio.to_thread(_cluster.drop, name)


class _Cluster:
    """The one Postgres of this process: started at first use, ended with the process. May be used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._postgres: EmbeddedPostgres | None = None

    def create(self, name: str) -> str:
        """Blocks until the database is there; its DSN."""
        with self._lock:
            if self._postgres is None:
                self._postgres = self._started()
            # Copied as files: through the log, as is the default, it costs several times the work.
            _run(self._postgres.dsn, "createdb", f"--template={TEMPLATE}", "--strategy=file_copy", name)
            return _dsn_of(self._postgres, name)

    def drop(self, name: str) -> None:
        if self._postgres is not None:
            _run(self._postgres.dsn, "dropdb", "--force", "--if-exists", name)

    def _started(self) -> EmbeddedPostgres:
        from placet_server.embedded.server import EmbeddedPostgres
        from placet_server.store.migrate import migrate

        postgres = EmbeddedPostgres(fsync=True, settings=POSTGRES_SETTINGS)
        postgres.start()
        atexit.register(postgres.stop)
        _run(postgres.dsn, "createdb", TEMPLATE)
        asyncio.run(migrate(_dsn_of(postgres, TEMPLATE)))
        asyncio.run(_visit(_dsn_of(postgres, TEMPLATE)))
        return postgres


def _run(dsn: str, program: str, *arguments: str) -> None:
    """One of Postgres's own programs; the password goes by environment, where other users do not see it."""
    from placet_server.embedded import binaries

    parts = urlsplit(dsn)
    environment = {
        "PGHOST": parse_qs(parts.query)["host"][0],
        "PGUSER": parts.username or "",
        "PGPASSWORD": unquote(parts.password or ""),
        "LC_ALL": "C.UTF-8",
    }
    command = [binaries.find().program(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stderr.strip()}")


async def _visit(dsn: str) -> None:
    """The first session after a migration writes down what all later ones need of the catalogue, and so do not read."""
    from placet_server.store.connection import connect

    await (await connect(dsn)).close()


def _dsn_of(postgres: EmbeddedPostgres, name: str) -> str:
    return postgres.dsn.replace("/postgres?", f"/{name}?", 1)


_cluster = _Cluster()
