"""Colours are for terminals, and not for everybody at one."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from tests.cli.support import COMMAND, DevServer, clean_environment


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb", "NO_COLOR": ""}, False),
    ],
    ids=["a terminal", "NO_COLOR", "a dumb terminal"],
)
def test_a_terminal_has_colours_unless_it_says_no(
    environment: dict[str, str], coloured: bool, dev_server: DevServer
) -> None:
    shown = _on_a_terminal("health", PLACET_TOKEN_FILE=str(dev_server.token_file), **environment)
    assert b"SERVING" in shown
    assert coloured == (b"\x1b" in shown)


def _on_a_terminal(*arguments: str, **environment: str) -> bytes:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean_environment(**environment),
        )
    finally:
        os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:
        # Linux says so when the other end is closed.
        pass
    finally:
        os.close(ours)
        process.wait(30)
    return shown
