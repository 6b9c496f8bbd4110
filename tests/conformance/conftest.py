"""One client program per language, and the servers that they talk to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

import placet.testing
from tests import toolchain
from tests.conformance import desk
from tests.conformance.hosted import hosted
from tests.conformance.program import Program

LANGUAGES = ("python", "go", "node")

Dial = Callable[..., Program]


@pytest.fixture(scope="session", params=LANGUAGES)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """How the language's program is started."""
    language: str = request.param
    if language == "go":
        toolchain.need("go version")
        # Of all workers of this run: the one that comes first builds it.
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        base = tmp_path_factory.getbasetemp()
        program = (base.parent if worker else base) / "conformance"
        with toolchain.alone("go"):
            if not program.is_file():
                toolchain.run(
                    "go", "build", "-o", str(program), "./conformance", folder=toolchain.ROOT / "clients/go"
                )
        return (str(program),)
    if language == "node":
        toolchain.need("node --version")
        toolchain.install_node_packages()
        return ("node", str(toolchain.ROOT / "clients/typescript/conformance/program.js"))
    return (sys.executable, str(Path(__file__).with_name("python_program.py")))


@pytest.fixture(scope="session")
def dial(command: Sequence[str]) -> Iterator[Dial]:
    """The language's program against a target: `dial(target, token)`; started once for each."""
    with ExitStack() as stack:
        started: dict[tuple[str, str], Program] = {}

        def start(target: str, token: str = "") -> Program:
            if (target, token) not in started:
                program = started[target, token] = Program(command, target, token)
                stack.callback(program.close)
            return started[target, token]

        yield start


@pytest.fixture(scope="session")
def server() -> Iterator[placet.testing.Server]:
    """A real server of the desk's tools, shared by all tests."""
    with hosted(placet.testing.server(desk.app)) as running:
        yield running


@pytest.fixture
def program(dial: Dial, server: placet.testing.Server) -> Program:
    """The language's program, with a token, against the real server."""
    return dial(server.target, server.token)
