"""Servers, the provider and callers of fault tests. Whatever a test started ends with it, by its pid."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.caller import Caller
from tests.faults.processes import Provider, Server, Servers, Zygote
from tests.faults.store_owner import Store
from tests.postgres import Kind, lay_out

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test that is for both kinds of Postgres and has variants beside, the installed one gets the first; all of
    them by PLACET_LONG=1. What dies, and when, is the server's and not the kind's.
    """
    if os.environ.get("PLACET_LONG") == "1":
        return
    seen: set[str] = set()
    kept, left = [], []
    for item in items:
        is_installed = HERE in item.path.parents and _is_of_the_installed(item)
        if is_installed and _name_of(item) in seen:
            left.append(item)
        else:
            kept.append(item)
        if is_installed:
            seen.add(_name_of(item))
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def _is_of_the_installed(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    is_for_both = item.get_closest_marker("both_servers") is not None
    return is_for_both and callspec is not None and callspec.params.get("postgres_kind") == "installed"


def _name_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@pytest.fixture(scope="session")
def _provider() -> Iterator[Provider]:
    running = Provider()
    yield running
    running.close()


@pytest.fixture
def provider(_provider: Provider) -> Iterator[Provider]:
    """Counts from zero, and holds nothing."""
    _provider.reset()
    yield _provider
    _provider.release()


@pytest.fixture
def data_folder(open_folder: Path) -> Path:
    """Of an embedded Postgres, and ready to start."""
    lay_out(open_folder / "data", "embedded")
    return open_folder / "data"


@pytest.fixture
def servers(zygote: Zygote, provider: Provider, open_folder: Path) -> Iterator[Servers]:
    started = Servers(zygote, open_folder, provider)
    yield started
    started.close()


@pytest.fixture
def store(open_folder: Path, postgres_kind: Kind) -> Iterator[Store]:
    lay_out(open_folder / "store", postgres_kind)
    with closing(Store(open_folder / "store", postgres_kind)) as started:
        started.start()
        yield started


@pytest.fixture
async def call() -> AsyncIterator[Callable[[Server], Caller]]:
    """A caller of a server."""
    made: list[Caller] = []

    def connect(server: Server) -> Caller:
        made.append(Caller(server))
        return made[-1]

    yield connect
    for caller in made:
        await caller.close()
