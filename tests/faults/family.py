"""A parent and its children as a real process tree, from `placet serve --processes`. Blocking."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.processes import ROOT, WAIT_SECONDS, wait_until

CHILD = b"placet_server.parent.child_main"


class Family:
    """Ends with the test, whatever it was killed with: the parent's standard input ends, and it drains."""

    def __init__(self, environment: Mapping[str, str], log: Path, token_file: Path, processes: int) -> None:
        self.log_file = log
        self.token_file = token_file
        self.target = ""
        self.health_target = ""
        self.boot_ids: list[str] = []
        self._seen: set[int] = set()
        command = [sys.executable, "-m", "placet_server.cli.main", "serve", "--json", "--until-stdin-ends"]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--processes", str(processes)],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def token(self) -> str:
        token: str = json.loads(self.token_file.read_text())["token"]
        return token

    def until_ready(self) -> Family:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"not ready ({self.process.wait()}):\n{self.log()}"
        ready: dict[str, Any] = json.loads(line)["ready"]
        self.target, self.health_target = ready["target"], ready["health_target"]
        self.boot_ids = [each["boot_id"] for each in ready["processes"]]
        self.children()
        return self

    def children(self) -> list[int]:
        """The pids of those that live, and are children of this parent."""
        found = [pid for pid in living_children() if _parent_of(pid) == self.pid]
        self._seen.update(found)
        return sorted(found)

    def left(self) -> set[int]:
        """Children ever seen that live, whoever is their parent now."""
        return self._seen & living_children()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(WAIT_SECONDS)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def close(self) -> None:
        self.children()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        for pid in self.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.left(), "the end of all children")


def living_children() -> set[int]:
    """All of them on this machine, not those that are only to be reaped."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if CHILD in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found


def _parent_of(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("PPid:"):
                return int(line.split()[1])
    return 0
