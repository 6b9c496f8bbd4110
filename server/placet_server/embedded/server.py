"""One embedded Postgres: start it, connect to it, stop it."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from signal import SIGKILL, SIGQUIT
from types import TracebackType
from typing import Self
from urllib.parse import quote

from placet_server.embedded import account, binaries
from placet_server.embedded.account import Account
from placet_server.embedded.binaries import Binaries
from placet_server.embedded.error import FolderUnreachable, StartFailed
from placet_server.embedded.folder import INITDB_FORM, SUPERUSER, DataFolder
from placet_server.embedded.process_table import processes_of
from placet_server.embedded.supervision import Supervised, spawn

DATABASE = "postgres"
POLL_SECONDS = 0.005
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Errors are answered to us anyway; the log would repeat payloads without bound.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
}
EPHEMERAL_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


class EmbeddedPostgres:
    """A Postgres that belongs to this process and ends with it, however that ends.

    Two profiles: with ``data_folder`` durable (fsync on, one owner at a time), without it ephemeral (a
    temporary folder, fsync off, deleted at stop). Reached by unix socket and password only. Other processes
    may use ``dsn``, too; they lose it when the owner stops. Blocking; not thread-safe; may be started in
    any thread.
    """

    def __init__(
        self,
        data_folder: str | Path | None = None,
        *,
        programs: str | Path = "auto",
        fsync: bool | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout_seconds: float = 60.0,
        stop_timeout_seconds: float = 30.0,
        cache_folder: Path = binaries.CACHE_FOLDER,
    ) -> None:
        """``programs``: see ``binaries.find``. ``fsync``: on if durable, off if ephemeral, unless given."""
        self.ephemeral = data_folder is None
        self.fsync = (not self.ephemeral) if fsync is None else fsync
        self._wanted_folder = None if data_folder is None else Path(data_folder)
        self._programs = programs
        self._settings = dict(settings or {})
        self._start_timeout_seconds = start_timeout_seconds
        self._stop_timeout_seconds = stop_timeout_seconds
        self._cache_folder = cache_folder
        self._folder: DataFolder | None = None
        self._server: Supervised | None = None
        self._dsn: str | None = None

    def __repr__(self) -> str:
        return f"<EmbeddedPostgres {self._folder.path if self._folder else 'not started'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """The connection string, password included: not for logs."""
        if self._dsn is None:
            raise RuntimeError("the embedded Postgres is not running")
        return self._dsn

    @property
    def folder(self) -> Path:
        """The data folder; of an ephemeral one, the temporary folder."""
        return self._running_folder().path

    @property
    def pid(self) -> int:
        """The pid of the server's first process."""
        pid = self._running_folder().server_pid()
        if pid is None:
            raise RuntimeError("the embedded Postgres has stopped")
        return pid

    @property
    def process_ids(self) -> list[int]:
        """The pids of all processes of the server."""
        return processes_of(self._running_folder().data)

    @property
    def lock_descriptor(self) -> int | None:
        """Of the data folder. Whoever inherits it keeps other owners away as long as it lives."""
        return self._running_folder().lock_descriptor

    @property
    def alive(self) -> bool:
        return self._server is not None and self._server.exit_code is None

    def start(self) -> None:
        """Start and wait until connections are accepted.

        Raises BinariesMissing, FolderUnreachable, FolderInUse, MajorVersionMismatch, StartFailed; nothing
        runs then.
        """
        if self._server is not None:
            raise RuntimeError("already started")
        found = binaries.find(self._programs)
        runner = account.choose((self._wanted_folder or Path("/nonexistent")) / "pgdata")
        found = binaries.reachable_by(runner, found, self._cache_folder)
        self._folder = folder = DataFolder(self._wanted_folder or _temporary_folder(runner))
        try:
            self._start_in(folder, found, runner)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop fast and orderly; by force if the server does not end in time. Idempotent."""
        folder, self._folder = self._folder, None
        server, self._server = self._server, None
        self._dsn = None
        if folder is None:
            return
        if server is not None:
            _end(server, folder, self._stop_timeout_seconds)
        folder.unlock()
        for scratch in (folder.socket_scratch, folder.path if self.ephemeral else None):
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)

    def _start_in(self, folder: DataFolder, found: Binaries, runner: Account) -> None:
        folder.make(runner)
        folder.lock()
        password = folder.password()
        folder.rotate_log()
        if folder.data.exists():
            folder.require_major(found)
            folder.clear_leftovers()
        else:
            seconds = self._start_timeout_seconds
            _initialise(folder, found, runner, password, sync=self.fsync, timeout_seconds=seconds)
        socket_folder = folder.socket_folder(runner)
        self._server = self._launch(folder, found, runner, socket_folder)
        self._wait_until_ready(folder, self._server)
        host = quote(str(socket_folder), safe="")
        self._dsn = f"postgresql://{SUPERUSER}:{quote(password)}@/{DATABASE}?host={host}"

    def _launch(
        self, folder: DataFolder, found: Binaries, runner: Account, socket_folder: Path
    ) -> Supervised:
        settings = {
            **SETTINGS,
            **(EPHEMERAL_SETTINGS if self.ephemeral else {}),
            "fsync": "on" if self.fsync else "off",
            **self._settings,
            "unix_socket_directories": str(socket_folder),
        }
        command = [found.program("postgres"), "-D", str(folder.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        scratch = folder.path if self.ephemeral else folder.socket_scratch
        with folder.open_log() as log:
            return Supervised(command, account=runner, log=log, scratch=scratch)

    def _wait_until_ready(self, folder: DataFolder, server: Supervised) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        while not folder.ready():
            exit_code = server.exit_code
            if exit_code is not None or time.monotonic() > deadline:
                raise StartFailed(folder.path, "postgres", exit_code, folder.log_tail())
            time.sleep(POLL_SECONDS)

    def _running_folder(self) -> DataFolder:
        if self._folder is None:
            raise RuntimeError("the embedded Postgres is not running")
        return self._folder


def _temporary_folder(runner: Account) -> Path:
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
        if runner.blocked_by(parent) is None:
            folder = Path(tempfile.mkdtemp(prefix="placet-", dir=parent))
            # The server's user owns it, so that the watchdog can delete it when we are gone.
            runner.own(folder)
            return folder
    raise FolderUnreachable(Path(tempfile.gettempdir()), Path(tempfile.gettempdir()), runner.name)


def _initialise(
    folder: DataFolder,
    found: Binaries,
    runner: Account,
    password: str,
    *,
    sync: bool,
    timeout_seconds: float,
) -> None:
    """Build a new cluster aside and move it into place, so that a crash leaves no half of one."""
    scratch = folder.fresh_scratch(runner)
    with tempfile.NamedTemporaryFile("w", prefix="placet-", dir=folder.path) as password_file:
        password_file.write(password)
        password_file.flush()
        runner.own(Path(password_file.name))
        command = [found.program("initdb"), f"--pgdata={scratch}", f"--username={SUPERUSER}"]
        command += [f"--pwfile={password_file.name}", "--no-instructions", *INITDB_FORM]
        command += [] if sync else ["--no-sync"]
        with folder.open_log() as log:
            process = spawn(command, account=runner, stdin=subprocess.DEVNULL, output=log)
            exit_code = _ended_within(process, timeout_seconds)
    if exit_code != 0:
        shutil.rmtree(scratch, ignore_errors=True)
        raise StartFailed(folder.path, "initdb", exit_code, folder.log_tail())
    folder.publish(scratch)


def _ended_within(process: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    """The exit code; None if it took longer, and was ended with all that it had started."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, SIGKILL)
        process.wait()
        return None


def _end(server: Supervised, folder: DataFolder, timeout_seconds: float) -> None:
    server.release()
    if server.wait(timeout_seconds):
        return
    folder.signal_server(SIGQUIT)
    if server.wait(5.0):
        return
    for pid in processes_of(folder.data):
        os.kill(pid, SIGKILL)
    server.wait(5.0)
