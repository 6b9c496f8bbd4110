"""Whoever follows the README, the tutorial or a guide gets what they promise."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from placet.testing import Say, call
from placet.testing.model_servers import ModelServer, OpenAIServer
from tests.cli.support import DevServer
from tests.docs.snippets import Desk, blocks
from tests.postgres import open_folder
from tests.toolchain import ROOT, install_node_packages, need, run
from tests.warm import Warm

pytestmark = pytest.mark.timeout(300)


@contextmanager
def desk_in_a_new_folder(*programs: Path) -> Iterator[Desk]:
    with open_folder() as folder:
        desk = Desk(folder, *programs)
        try:
            yield desk
        finally:
            desk.close()


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    with closing(Warm(tmp_path_factory.mktemp("programs"))) as process:
        yield process


@pytest.fixture
def desk(warm: Warm) -> Iterator[Desk]:
    with desk_in_a_new_folder(warm.folder) as desk:
        yield desk


def test_every_command_of_the_readme_prints_what_it_says_by_the_installed_program() -> None:
    with desk_in_a_new_folder() as desk:
        desk.follow("README.md")


@pytest.mark.parametrize(
    "document",
    ["docs/first-tool.md", "docs/two-people.md", "docs/queues.md", "docs/recovery.md", "docs/agents.md"],
)
def test_every_command_prints_what_the_document_says(desk: Desk, document: str) -> None:
    desk.follow(document)


def test_two_services_work_together_as_their_guide_says(desk: Desk) -> None:
    folder = "examples/two_services"
    for name in ("payments.py", "warehouse.py"):
        shutil.copy(ROOT / folder / name, desk.folder)
    desk.follow(f"{folder}/README.md")


def test_an_agent_on_an_own_model_does_as_its_guide_says(desk: Desk) -> None:
    folder = "examples/own_model"
    shutil.copy(ROOT / folder / "desk.py", desk.folder)
    script = [
        Say("I look it up.", call("desk.look", order="A-1001")),
        Say("I refund it.", call("desk.refund", order="A-1001", amount_cents=1990)),
        Say("19.90 were paid back for A-1001."),
    ]
    with served(OpenAIServer(script, key="")) as server:
        models = (ROOT / folder / "models.toml").read_text(encoding="utf-8")
        (desk.folder / "models.toml").write_text(models.replace("http://127.0.0.1:8000/v1", server.base_url))
        desk.follow(f"{folder}/README.md")
        assert [1, 2, 3] == [request.turn for request in server.requests]


@contextmanager
def served(server: ModelServer) -> Iterator[ModelServer]:
    """In a thread with a loop of its own."""
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        runner.run(server.__aenter__())
        ended = asyncio.Event()
        waiting = thread.submit(runner.run, ended.wait())
        try:
            yield server
        finally:
            runner.get_loop().call_soon_threadsafe(ended.set)
            waiting.result()
            runner.run(server.__aexit__(None, None, None))


def test_the_go_program_compiles(tmp_path: Path) -> None:
    need("go version")
    program = next(block for block in blocks("docs/first-tool.md") if block.file == "main.go")
    (tmp_path / "main.go").write_text(program.text, encoding="utf-8")
    api = ROOT / "generated/go"
    module = (api / "go.mod").read_text(encoding="utf-8")
    requirements = module[module.index("require") :].replace(" // indirect", "")
    (tmp_path / "go.mod").write_text(
        f"module shop\n\ngo 1.26\n\n{requirements}\nrequire placet.dev/api v0.0.0\n\nreplace placet.dev/api => {api}\n",
        encoding="utf-8",
    )
    shutil.copy(api / "go.sum", tmp_path / "go.sum")
    run("go", "vet", "-mod=mod", ".", folder=tmp_path)


def test_the_node_program_is_answered_and_says_who_is_not_there() -> None:
    need("node --version")
    install_node_packages()
    [program] = [block for block in blocks("docs/first-tool.md") if block.file == "pay.mjs"]
    with open_folder() as folder:
        (folder / "pay.mjs").write_text(program.text, encoding="utf-8")
        (folder / "node_modules").symlink_to(ROOT / "clients/typescript/node_modules")
        with DevServer(folder / ".placet"):
            first, again = _pay(folder), _pay(folder)
        gone = _pay(folder)
    assert (0, 0, 1) == (first.returncode, again.returncode, gone.returncode), first.stdout + first.stderr
    assert ["attached: false", "attached: true"] == [
        done.stdout[:-1].split("} ")[1] for done in (first, again)
    ]
    assert gone.stdout.startswith("14 UNAVAILABLE: ")


def _pay(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["node", "pay.mjs"], cwd=folder, capture_output=True, text=True, timeout=60)
