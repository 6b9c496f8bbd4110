"""The data folder of an embedded Postgres.

    <folder>/postgres.lock       locked (flock) by the owner for its life; holds its pid
    <folder>/postgres.password   0600, the owner's
    <folder>/postgres.log        what the server says
    <folder>/pgdata/             0700, of the user the server runs as; appears whole or not at all

Only what was made here has its owner or mode set.
"""

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGQUIT
from typing import IO

from placet_server.embedded import binaries as binaries_module
from placet_server.embedded.account import Account
from placet_server.embedded.binaries import Binaries
from placet_server.embedded.descriptor import OwnedDescriptor
from placet_server.embedded.error import FolderInUse, MajorVersionMismatch
from placet_server.embedded.process_table import processes_of

SUPERUSER = "placet"
SOCKET_NAME = ".s.PGSQL.5432"
# sun_path is 108 bytes on Linux, 104 on macOS; Postgres also makes a lock file with a longer name.
SOCKET_PATH_BYTES_MAX = 100
# Collation by code point: the same on every system, and untouched by upgrades of the C library.
INITDB_FORM = ("--auth=scram-sha-256", "--data-checksums", "--encoding=UTF8", "--locale=C")
LOG_BYTES_MAX = 8 * 1024 * 1024
ORPHAN_GRACE_SECONDS = 3.0


class DataFolder:
    """One data folder, from lock to release. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.data = self.path / "pgdata"
        self.log = self.path / "postgres.log"
        self._lock: OwnedDescriptor | None = None
        self._socket_scratch: Path | None = None

    def make(self, account: Account) -> None:
        """Make the folder and what is missing above it. Raises FolderUnreachable."""
        for folder in [step for step in (*reversed(self.path.parents), self.path) if not step.exists()]:
            with suppress(FileExistsError):  # Another process was first; it is theirs to set the mode of.
                folder.mkdir()
                folder.chmod((0o711 if account.switch else 0o700) if folder == self.path else 0o755)
        account.require_reach(self.path)

    def lock(self) -> None:
        """Become the owner, for as long as this process lives. Raises FolderInUse."""
        descriptor = os.open(self.path / "postgres.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(descriptor, 32, 0).strip()
            os.close(descriptor)
            raise FolderInUse(self.path, int(pid) if pid.isdigit() else None) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._lock = OwnedDescriptor(descriptor)

    @property
    def lock_descriptor(self) -> int | None:
        """A child that inherits it holds the lock, too, until it ends."""
        return None if self._lock is None else self._lock.number

    def unlock(self) -> None:
        """Idempotent."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def password(self) -> str:
        """The superuser's password, made on first use."""
        path = self.path / "postgres.password"
        with suppress(FileNotFoundError):
            return path.read_text()
        password = secrets.token_urlsafe(24)
        scratch = path.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(password)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
        return password

    def require_major(self, offered: Binaries) -> None:
        """Raises MajorVersionMismatch if the data is not of that major version."""
        found = int((self.data / "PG_VERSION").read_text().split(".")[0])
        if found != offered.major:
            command = _upgrade_command(self.path, self.data, found, offered)
            raise MajorVersionMismatch(self.path, found, offered.major, command)

    def clear_leftovers(self) -> None:
        """End what an owner that is gone left running here, and drop its pid file.

        We hold the lock, so nobody owns a server that still runs on this data: it is stopping, or its
        watchdog was killed too. A pid file that names no process *of this data* comes from a power loss;
        the pid may be anybody's by now, which Postgres would take for a running server. Raises FolderInUse
        if the server does not end.
        """
        for signal in (None, SIGINT, SIGQUIT):
            if signal is not None:
                self.signal_server(signal)
            if self._ends_within(ORPHAN_GRACE_SECONDS):
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                return
        raise FolderInUse(self.path, next(iter(processes_of(self.data)), None))

    def signal_server(self, signal: int) -> None:
        """Send a signal to the server's first process, and wake all that are frozen, or none would hear it."""
        first, process_ids = self.server_pid(), processes_of(self.data)
        for pid in process_ids:
            with suppress(ProcessLookupError):
                if pid == first:
                    os.kill(pid, signal)
                os.kill(pid, SIGCONT)

    def server_pid(self) -> int | None:
        lines = self._pid_file()
        return int(lines[0]) if lines and lines[0].isdigit() else None

    def ready(self) -> bool:
        """Whether the server says that it accepts connections."""
        lines = self._pid_file()
        return len(lines) >= 8 and lines[7].strip() == "ready"

    def socket_folder(self, account: Account) -> Path:
        """With the data, or in a private temporary folder if that path is too long or odd."""
        if _fits_socket(self.data):
            return self.data
        for parent in (tempfile.gettempdir(), "/tmp"):
            if _fits_socket(Path(parent) / "placet-12345678") and account.blocked_by(Path(parent)) is None:
                self._socket_scratch = Path(tempfile.mkdtemp(prefix="placet-", dir=parent))
                account.own(self._socket_scratch)
                return self._socket_scratch
        raise OSError(f"no temporary folder is short enough for a socket: {tempfile.gettempdir()}")

    @property
    def socket_scratch(self) -> Path | None:
        """The temporary folder of the socket, if one was needed."""
        return self._socket_scratch

    def log_tail(self, bytes_max: int = 2000) -> str:
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - bytes_max))
            return file.read().decode(errors="replace")
        return ""

    def open_log(self) -> IO[bytes]:
        return open(self.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600))

    def rotate_log(self) -> None:
        """Keep one older log, so that both together are bounded by what one run writes."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".log.1"))

    def fresh_scratch(self, account: Account) -> Path:
        """An empty folder next to the data for the server's user to build it in."""
        scratch = self.path / "pgdata.new"
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir(mode=0o700)
        account.own(scratch)
        return scratch

    def publish(self, scratch: Path) -> None:
        """Make what was built there the data, durably."""
        scratch.rename(self.data)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while processes_of(self.data):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []


def _fits_socket(folder: Path) -> bool:
    text = str(folder)
    plain = not set(text) & set(",\"' \\") and text.isascii() and not text.startswith("@")
    return plain and len(os.fsencode(folder / SOCKET_NAME)) <= SOCKET_PATH_BYTES_MAX


def _upgrade_command(folder: Path, data: Path, found: int, offered: Binaries) -> str:
    if found > offered.major:
        return f"Data cannot go back a version: install PostgreSQL {found} or newer."
    old = next((other.folder for other in binaries_module.installed() if other.major == found), None)
    old_folder = old or Path(f"/usr/lib/postgresql/{found}/bin")
    new_data = folder / "pgdata.upgraded"
    initdb = f"{offered.program('initdb')} -D {new_data} -U {SUPERUSER} {' '.join(INITDB_FORM)} -W"
    upgrade = f"{offered.program('pg_upgrade')} -U {SUPERUSER} -b {old_folder} -B {offered.folder}"
    return (
        f"To upgrade, run as the owner of {data}: {initdb} && {upgrade} -d {data} -D {new_data}, "
        f"then put {new_data.name} in place of {data.name}. "
        f"To keep PostgreSQL {found}, start with the programs in {old_folder}."
    )
