"""A child process that cannot outlive its owner.

The child is a shell that starts the server and holds the read end of a pipe whose write end is the owner's.
When the owner ends, in whatever way, `kill -9` included, the kernel closes the write end, and the shell
asks the server for a fast shutdown. An orderly stop closes the pipe on purpose, so that both ways are one.
PR_SET_PDEATHSIG would be shorter, but exists on Linux only, follows the *thread* that forked, and needs
Python code between fork and exec.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from placet_server.embedded.account import Account
from placet_server.embedded.descriptor import OwnedDescriptor

SHELL = "/bin/sh"
SCRIPT = """
exec 3<&0 </dev/null
scratch=$1
shift
"$@" 3<&- &
server=$!
{ read -r _ <&3; kill -INT "$server"; } 2>/dev/null &
watcher=$!
exec 3<&-
wait "$server"
code=$?
kill "$watcher" 2>/dev/null
[ -z "$scratch" ] || rm -rf -- "$scratch"
exit "$code"
"""

CHANGE_USER = """
import os, sys
user, group, *command = sys.argv[1:]
os.setgroups([])
os.setgid(int(group))
os.setuid(int(user))
os.execv(command[0], command)
"""


class Supervised:
    """One server process bound to the life of this one. Not thread-safe."""

    def __init__(
        self, command: Sequence[str], *, account: Account, log: IO[bytes], scratch: Path | None
    ) -> None:
        """``scratch``: a folder to delete when the server has ended, also if nobody is left to do it."""
        watched, lifeline = os.pipe()
        self._lifeline = OwnedDescriptor(lifeline)
        try:
            self._process = spawn(
                [SHELL, "-c", SCRIPT, "placet-postgres", str(scratch or ""), *command],
                account=account,
                stdin=watched,
                output=log,
            )
        finally:
            os.close(watched)

    @property
    def exit_code(self) -> int | None:
        """None while the server runs."""
        return self._process.poll()

    def release(self) -> None:
        """Ask the server for a fast shutdown. Idempotent."""
        self._lifeline.close()

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the server has ended within that time."""
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def spawn(
    command: Sequence[str], *, account: Account, stdin: int, output: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start a Postgres program as ``account``, with nothing of our environment and in its own session.

    A fresh Python changes the user, not the child of a fork: with ``user=`` subprocess must use fork(), whose
    handlers gRPC has hooked, and a fork while gRPC's threads are at work can end in a crash before exec.
    """
    if account.switch:
        command = [
            sys.executable,
            "-IS",
            "-c",
            CHANGE_USER,
            str(account.user_id),
            str(account.group_id),
            *command,
        ]
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=output,
        stderr=output,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
        umask=0o077,
        start_new_session=True,
    )
