"""A program at a terminal of its own, as somebody sits before it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SILENT_SECONDS = 60
POLL_SECONDS = 0.1


class Terminal:
    """`process` has it as its controlling terminal: Ctrl-C typed here is for it."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._seen = ""

    def read(self) -> str:
        """What comes next; empty once it has ended and all is read."""
        end = time.monotonic() + SILENT_SECONDS
        while time.monotonic() < end:
            has_ended = self.process.poll() is not None
            if select.select([self._descriptor], [], [], 0 if has_ended else POLL_SECONDS)[0]:
                part = os.read(self._descriptor, 65536).decode()
                self._seen += part
                return part
            if has_ended:
                return ""
        raise AssertionError(f"it says nothing more, and does not end, after: {self._seen[-2000:]}")

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())


@contextmanager
def at_a_terminal(
    command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    try:
        # A session's leader gets the first terminal that it opens as its own; nobody forks amid other threads.
        opened = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(theirs), *command]
        process = subprocess.Popen(opened, env=dict(environment), cwd=folder, start_new_session=True)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(theirs)
        os.close(ours)
