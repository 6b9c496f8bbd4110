"""Which processes run on a data folder: by the kernel's word, not by a pid file that may be years old."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path


def processes_of(data: Path) -> list[int]:
    """The pids of all Postgres processes on ``data``; a Postgres process works inside its data folder."""
    real = str(data.resolve())
    if Path("/proc/self/cwd").exists():
        return [pid for pid in _pids() if _working_folder(pid) == real]
    return _named_on_command_line(real)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _working_folder(pid: int) -> str | None:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")
    return None


def _named_on_command_line(data: str) -> list[int]:
    listing = subprocess.run(
        ["ps", "-axo", "pid=,command="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(None, 1) for line in listing.splitlines())
    return [int(pid) for pid, command in rows if f"-D {data} " in f"{command} "]
