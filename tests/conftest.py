"""Fixtures for every test: servers, databases, and which of the two kinds of server a test runs on."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from tests import postgres

if TYPE_CHECKING:
    from tests.faults.processes import Zygote

DEFAULT_KIND = os.environ.get("PLACET_TEST_POSTGRES", "embedded")
REQUIRED = os.environ.get("PLACET_REQUIRE_TOOLCHAINS") == "1"

# Hundreds of processes start from the same sources: whoever forbids compiled ones has them compile these each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A job in the background of a shell is deaf to interrupts, and so would be all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_of_this_loop(record: logging.LogRecord) -> bool:
    """What grpc still hears for the loop of an earlier test goes to that, and says so in the log of this one."""
    return "PollerCompletionQueue._handle_events" not in record.getMessage()


def pytest_configure(config: pytest.Config) -> None:
    logging.getLogger("asyncio").addFilter(_is_of_this_loop)
    config.addinivalue_line("markers", "both_servers: run on the embedded and on an installed Postgres")
    postgres.share_what_is_made()
    # Whatever is made while tests are collected stays.
    gc.disable()


def pytest_xdist_auto_num_workers() -> int:
    """Two more than cores: a third of a test's time is waiting for Postgres, or for real time to pass."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_collection_finish() -> None:
    """What is here now stays to the end: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "postgres_kind" in metafunc.fixturenames and not _says_its_kind(metafunc.definition):
        both = metafunc.definition.get_closest_marker("both_servers") is not None
        kinds = list(get_args(postgres.Kind)) if both else [DEFAULT_KIND]
        metafunc.parametrize("postgres_kind", kinds, indirect=True, scope="session")


def _says_its_kind(item: pytest.Item) -> bool:
    """Among its own parameters."""
    return any("postgres_kind" in mark.args[0] for mark in item.iter_markers("parametrize"))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Forks servers that are to be killed."""
    from tests.faults.processes import Zygote

    with closing(Zygote()) as running:
        yield running


@pytest.fixture(scope="session")
def postgres_kind(request: pytest.FixtureRequest) -> postgres.Kind:
    """The kind of server of this test; skips where it is missing, unless the toolchains are required."""
    kind: postgres.Kind = request.param
    problem = postgres.missing(kind)
    if problem is not None:
        if REQUIRED:
            pytest.fail(problem)
        pytest.skip(problem)
    return kind


@pytest.fixture(scope="session")
def _clusters() -> Iterator[dict[postgres.Kind, postgres.Cluster]]:
    with ExitStack() as stack:
        yield _Clusters(stack)


class _Clusters(dict[postgres.Kind, postgres.Cluster]):
    """Starts each kind of server once, on first use."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, kind: postgres.Kind) -> postgres.Cluster:
        self[kind] = self._stack.enter_context(postgres.cluster(kind))
        return self[kind]


@pytest.fixture
def cluster(
    postgres_kind: postgres.Kind, _clusters: dict[postgres.Kind, postgres.Cluster]
) -> postgres.Cluster:
    """The shared server: not to be stopped, frozen or reconfigured."""
    return _clusters[postgres_kind]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that the unprivileged user of an embedded Postgres can enter."""
    with postgres.open_folder() as folder:
        yield folder


@pytest.fixture
def database(cluster: postgres.Cluster) -> Iterator[postgres.Database]:
    """A migrated, empty database of this test alone."""
    with cluster.database() as fresh:
        yield fresh


@pytest.fixture
def empty_database(cluster: postgres.Cluster) -> Iterator[postgres.Database]:
    """A database of this test alone, without a schema."""
    with cluster.database(migrated=False) as fresh:
        yield fresh
