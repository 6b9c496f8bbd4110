"""Child processes and what /proc tells of them. Linux."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 40.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_LISTENING = "0A"
_ESTABLISHED = "01"


class StartFailed(Exception):
    """A server ended, or did not listen in time."""


class SharedPort:
    """A free port on loopback, kept by a socket that never listens, so that servers with SO_REUSEPORT share it."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


class Child:
    """A server process; its output goes to `log`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.pid = self._process.pid

    def wait_until_listening(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not _inodes(port, _LISTENING) & _socket_inodes(self.pid):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise StartFailed(f"a server did not start:\n{self.log()}")
            time.sleep(0.02)

    def connection_count(self, port: int) -> int:
        return len(_inodes(port, _ESTABLISHED) & _socket_inodes(self.pid))

    def alive(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time, that of ended and awaited children included."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_PER_SECOND


def resident_bytes(pids: Iterable[int]) -> int:
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * os.sysconf(
        "SC_PAGE_SIZE"
    )


def busy_seconds() -> float:
    """Of all cores since the machine started, guests and interrupts included."""
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_PER_SECOND


def _inodes(port: int, state: str) -> set[str]:
    """Of the sockets with this local port and state."""
    wanted = f":{port:04X}"
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == state:
                found.add(fields[9])
    return found


def _socket_inodes(pid: int) -> set[str]:
    found = set()
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return set()
    for descriptor in descriptors:
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found
