"""Real Postgres for tests: one server per worker and kind, one database per test, cloned from a template.

Kinds: ``embedded`` (the wheel's, by unix socket) and ``installed`` (Debian's PostgreSQL 15 or newer, by TCP
on a free loopback port). Both end with the test process, also when that is killed.
"""

import asyncio
import atexit
import base64
import fcntl
import hashlib
import hmac
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg

from placet.testing import scratch
from placet.testing.port import free_port
from placet_server.embedded import binaries
from placet_server.embedded import server as embedded
from placet_server.embedded.account import Account
from placet_server.embedded.error import BinariesMissing
from placet_server.embedded.folder import SUPERUSER
from placet_server.embedded.server import DATABASE, EmbeddedPostgres
from placet_server.store.migrate import migrate

Kind = Literal["embedded", "installed"]
PROGRAMS: dict[Kind, str] = {"embedded": "wheel", "installed": "installed"}
TEMPLATE = "placet_template"
# Not among the settings of a server, which reads all that begin with PLACET_.
MADE = "MADE_FOR_TESTS_OF_PLACET"
DISK, MEMORY = "/tmp", "/dev/shm"
MEMORY_BYTES_MIN = 4 << 30
Result = TypeVar("Result")
SMALL = {
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_wal_size": "256MB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A migrated, otherwise empty database of one test."""

    dsn: str
    name: str
    server: EmbeddedPostgres


class Cluster:
    """One running server, whose own database is migrated, with a template of it. Used by one thread at a time."""

    def __init__(self, server: EmbeddedPostgres, admin_dsn: str) -> None:
        self.server = server
        self.admin_dsn = admin_dsn
        # A loop on a thread of its own, so that fixtures leave the loops of the tests alone.
        self._thread = ThreadPoolExecutor(1)
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._administer(f"create database {TEMPLATE} template {DATABASE} strategy file_copy")
        # The first connection after a migration writes down what all later ones need of the catalogue.
        self._run(self._visit(self.dsn_of(TEMPLATE)))

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[Database]:
        """A database of its own, dropped afterwards whoever is still connected."""
        name = f"test_{uuid.uuid4().hex}"
        # Copied as files: through the log, as is the default, each costs four times the work.
        template = TEMPLATE if migrated else "template1"
        self._administer(f"create database {name} template {template} strategy file_copy")
        try:
            yield Database(dsn=self.dsn_of(name), name=name, server=self.server)
        finally:
            self._administer(f"drop database if exists {name} with (force)")

    def close(self) -> None:
        if self._connection is not None:
            self._run(self._connection.close())
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def dsn_of(self, name: str) -> str:
        return self.admin_dsn.replace("/postgres?", f"/{name}?", 1)

    def _administer(self, statement: str) -> None:
        self._run(self._execute(statement))

    async def _visit(self, dsn: str) -> None:
        await (await asyncpg.connect(dsn)).close()

    async def _execute(self, statement: str) -> None:
        if self._connection is None:
            self._connection = await asyncpg.connect(self.admin_dsn)
        await self._connection.execute(statement)

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.submit(self._runner.run, coroutine).result()


@contextmanager
def cluster(kind: Kind) -> Iterator[Cluster]:
    """A fresh server of that kind. Raises BinariesMissing."""
    if kind == "embedded":
        server, port = EmbeddedPostgres(programs=PROGRAMS[kind], settings=SMALL), None
    else:
        port = free_port()
        tcp = {"listen_addresses": "127.0.0.1", "port": str(port)}
        server = EmbeddedPostgres(programs=PROGRAMS[kind], settings={**SMALL, **tcp})
    with ExitStack() as stack:
        with _in_memory(), _laid_out(kind):
            stack.enter_context(server)
        dsn = server.dsn
        if port is not None:
            credentials = dsn.removeprefix("postgresql://").partition("@")[0]
            dsn = f"postgresql://{credentials}@127.0.0.1:{port}/postgres?"
        running = Cluster(server, dsn)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def open_folder() -> Iterator[Path]:
    """One that the unprivileged user of an embedded Postgres can enter, as pytest's own are closed to it."""
    with tempfile.TemporaryDirectory(
        prefix="placet-test-", dir=quick_parent(), ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def quick_parent() -> str:
    """Of temporary folders: in memory where there is room and programs may run, as a data folder is a thousand files, a
    database hundreds, and each costs many times its work on a disk."""
    with suppress(OSError):
        is_roomy = shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
        if is_roomy and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
            return MEMORY
    return DISK


@contextmanager
def _in_memory() -> Iterator[None]:
    """Temporary folders of a server."""
    before = tempfile.tempdir
    tempfile.tempdir = quick_parent()
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _laid_out(kind: Kind) -> Iterator[None]:
    """Temporary data folders are copies of one that was made, which has its password beside it."""
    before = embedded._temporary_folder

    def laid_out(runner: Account) -> Path:
        folder = before(runner)
        subprocess.run(["cp", "-a", f"{_made(kind)}/.", str(folder)], check=True)
        return folder

    embedded._temporary_folder = laid_out
    try:
        yield
    finally:
        embedded._temporary_folder = before


def _quick(dsn: str) -> str:
    """The same password to be proved by one round of hashing instead of 4096, which cost more than all else in making a
    connection; nobody need guess it slowly who cannot guess it at all."""
    password, salt = unquote(urlsplit(dsn).password or "").encode(), os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    shown = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256$1:{shown[0]}${shown[1]}:{shown[2]}"


def lay_out(folder: Path, kind: Kind) -> None:
    """A data folder of that kind of server, migrated: a copy of one that was made as every first start makes it, for a
    tenth of the work. Where a first start is what is tested, let it happen."""
    subprocess.run(["cp", "-a", str(_made(kind)), str(folder)], check=True)


def _made(kind: Kind) -> Path:
    """One of each kind for all processes of a run, by whoever comes first."""
    folder = _made_folder()
    with (folder / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / kind).exists():
            scratch = folder / f"{kind}.new"
            made = EmbeddedPostgres(scratch, programs=PROGRAMS[kind], fsync=False)
            # On a thread, as a test may have a loop on this one.
            with made as server, ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, _prepare(server.dsn)).result()
            scratch.rename(folder / kind)
    return folder / kind


async def _prepare(dsn: str) -> None:
    await migrate(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"alter role {SUPERUSER} password '{_quick(dsn)}'")
    await connection.close()


@cache
def _made_folder() -> Path:
    """Given by the first process of the run to the others; `conftest.py` says so."""
    if given := os.environ.get(MADE):
        return Path(given)
    folder = Path(tempfile.mkdtemp(prefix="placet-made-", dir=quick_parent()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    return folder


def share_what_is_made() -> None:
    """With the processes that this one starts, and with `placet.testing`."""
    os.environ[MADE] = str(_made_folder())
    start = scratch._Cluster._started

    def laid_out(cluster: scratch._Cluster) -> EmbeddedPostgres:
        with _in_memory(), _laid_out("embedded"):
            return start(cluster)

    scratch._Cluster._started = laid_out  # type: ignore[method-assign, assignment]


def missing(kind: Kind) -> str | None:
    """Why there is no server of that kind here; None if there is."""
    try:
        binaries.find(PROGRAMS[kind])
    except BinariesMissing as error:
        return str(error)
    return None
