"""One development server for the tests that need any, and the command line in this process."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from placet.testing import Server, server
from placet_server.cli import health
from tests.cli import people
from tests.cli.people import Office
from tests.cli.support import CommandLine, DevServer, missing_server
from tests.postgres import open_folder


@pytest.fixture(scope="session")
def dev_server() -> Iterator[DevServer]:
    """`placet dev` as a process, stopped in order at the end."""
    problem = missing_server()
    if problem is not None:
        pytest.skip(problem)
    with open_folder() as folder, DevServer(folder / ".placet") as server:
        yield server


@pytest.fixture
def folder() -> Iterator[Path]:
    """Empty; for an embedded Postgres."""
    problem = missing_server()
    if problem is not None:
        pytest.skip(problem)
    with open_folder() as created:
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
    # Whoever has a server at the usual port is not asked.
    monkeypatch.setattr(health, "DEFAULT_PORT", 1)
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def people_server() -> AsyncIterator[tuple[Server, Path]]:
    """A server in this process, for people who decide, and the developer's token file; theirs lie beside it."""
    problem = missing_server()
    if problem is not None:
        pytest.skip(problem)
    with tempfile.TemporaryDirectory(prefix="placet-people-") as folder:
        token_file = Path(folder, "token")
        async with server(people.app, token_file=token_file, dev_people=people.PEOPLE) as running:
            yield running, token_file


@pytest.fixture
def office(
    people_server: tuple[Server, Path], lone_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> Office:
    running, token_file = people_server
    monkeypatch.setenv("PLACET_HEALTH_TARGET", running.placet.health_target)
    return Office(lone_cli, running, token_file, monkeypatch)
