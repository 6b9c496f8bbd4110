"""The command line as a function, and as a process."""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from placet_server.cli import main
from tests.warm import TIED, Warm

COMMAND = (sys.executable, "-m", "placet_server.cli.main")
START_SECONDS = 60.0
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Fails unless stdout is one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Fails unless each line of stdout is a JSON document."""
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        self._capsys.readouterr()
        code = main.run(arguments)
        captured = self._capsys.readouterr()
        return Ended(code=code, out=captured.out, err=captured.err)


class DevServer:
    """`placet dev` on free ports."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self._options = options
        self.ready: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes]

    @property
    def token_file(self) -> Path:
        return self.data / "token"

    def __enter__(self) -> Self:
        command = [warm_command(), "dev", "--port", "0", "--data", str(self.data), "--json"]
        self._process = subprocess.Popen(
            [*command, *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Whatever ends these tests leaves none behind.
            env=clean_environment(**{TIED: "1"}),
        )
        line = first_line(self._process)
        if not line:
            self._process.kill()
            pytest.fail("`placet dev` did not become ready")
        self.ready = json.loads(line)["ready"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ended(self) -> int:
        """Wait for its end, of its own accord; the exit code."""
        return self._process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """By SIGTERM; returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            for stream in (self._process.stdin, self._process.stdout):
                assert stream is not None
                stream.close()


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Empty if the process ended, or took too long."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
    return process.stdout.readline() if readable else b""


def clean_environment(**own: str) -> dict[str, str]:
    """Ours without any setting of Placet, plus `own`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PLACET_")} | own


def run_process(*arguments: str, timeout: float = 60.0, cwd: Path | None = None, **environment: str) -> Ended:
    """The command in a process of its own."""
    done = subprocess.run(
        [warm_command(), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


@cache
def warm_command() -> str:
    """`placet` from a process that has everything imported already."""
    folder = Path(tempfile.mkdtemp(prefix="placet-warm-"))
    warm = Warm(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(warm.close)
    return str(folder / "placet")


def missing_server() -> str | None:
    """Why no server can run here; None if one can."""
    from tests import postgres

    return postgres.missing("embedded")
