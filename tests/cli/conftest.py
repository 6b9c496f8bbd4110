"""One development server for the tests that need any, and the command line in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import CommandLine, DevServer, missing_server, public_folder


@pytest.fixture(scope="session")
def dev_server() -> Iterator[DevServer]:
    """`placet dev` as a process, stopped in order at the end."""
    problem = missing_server()
    if problem is not None:
        pytest.skip(problem)
    with public_folder() as folder, DevServer(folder / ".placet") as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """Empty; for an embedded Postgres."""
    problem = missing_server()
    if problem is not None:
        pytest.skip(problem)
    with public_folder() as created:
        yield created


@pytest.fixture
def cli(
    dev_server: DevServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Connected to the development server."""
    monkeypatch.setenv("PLACET_TOKEN_FILE", str(dev_server.token_file))
    return CommandLine(capsys)


@pytest.fixture
def lone_cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> CommandLine:
    """In an empty folder, with nothing to say where a server is."""
    for name in ("PLACET_TARGET", "PLACET_TOKEN", "PLACET_TOKEN_FILE", "PLACET_DSN", "PLACET_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)
