"""`placet serve --processes`: one port, one health, nobody left behind, whoever is killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from placet.testing.port import free_port
from placet_server.parent.setting import child_environment
from tests.faults.caller import Caller, state_of
from tests.faults.family import Family
from tests.faults.processes import (
    WAIT_SECONDS,
    Provider,
    Servers,
    health_of,
    until_health,
    wait_until,
)
from tests.postgres import Database

# Nobody waits for a lease here: whoever has a parent is known to be dead.
LEASE_SECONDS = 60
Start = Callable[..., Family]


@pytest.fixture
def start(servers: Servers, open_folder: Path) -> Iterator[Start]:
    """A family; with `wait=False` as it is while it starts."""
    started: list[Family] = []

    def one(*, wait: bool = True, processes: int = 2, **fields: Any) -> Family:
        number = len(started)
        token_file = open_folder / f"family-token-{number}"
        environment = servers.variables(token_file, {"lease_seconds": LEASE_SECONDS, **fields})
        family = Family(environment, open_folder / f"family-log-{number}", token_file, processes)
        started.append(family)
        return family.until_ready() if wait else family

    yield one
    for family in started:
        family.close()


@pytest.fixture
def plain(database: Database) -> dict[str, Any]:
    """On a Postgres of its own."""
    return {"dsn": database.dsn, "dsn_durability": "ephemeral"}


@pytest.fixture
def embedded(data_folder: Path) -> dict[str, Any]:
    return {"data_dir": data_folder}


async def gone(family: Family) -> None:
    await asyncio.to_thread(wait_until, lambda: not family.left(), "the end of all children")


async def test_all_serve_one_port_and_health_and_metrics_are_of_all(
    start: Start, plain: dict[str, Any], call: Callable[[Any], Caller], database: Database
) -> None:
    metrics_port = free_port()
    family = start(processes=3, metrics_port=metrics_port, **plain)
    assert 3 == len(set(family.children())) == len(set(family.boot_ids))
    for number in range(60):
        caller = call(family)
        assert "SUCCEEDED" == (await caller.execute("till.clock", {}, f"k{number}")).word
    connection = await asyncpg.connect(database.dsn)
    used = await connection.fetch("select distinct instance_id::text as boot_id from actions")
    await connection.close()
    assert set(family.boot_ids) == {row["boot_id"] for row in used}
    assert {"SERVING"} == {health_of(family, name) for name in ("", "live", "ready", "storage")}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def scrape() -> str:
        with opener.open(f"http://127.0.0.1:{metrics_port}/metrics", timeout=WAIT_SECONDS) as response:
            text: str = response.read().decode()
        return text

    counts = re.findall(
        r'^placet_action_seconds_count{outcome="SUCCEEDED",process="([123])"} ([0-9.]+)$',
        await asyncio.to_thread(scrape),
        re.MULTILINE,
    )
    assert (["1", "2", "3"], 60) == (
        sorted(each[0] for each in counts),
        sum(float(each[1]) for each in counts),
    )


async def test_a_killed_child_is_started_again_and_its_work_is_not_left_to_a_lease(
    start: Start, plain: dict[str, Any], provider: Provider, call: Callable[[Any], Caller]
) -> None:
    family = start(**plain)
    before = family.children()
    provider.hold("before")
    callers = [call(family) for _ in range(8)]
    calls = [
        asyncio.ensure_future(caller.execute("till.refund", {"order": f"A-{number}"}, f"k{number}"))
        for number, caller in enumerate(callers)
    ]
    await provider.until_held(8, calls)
    os.kill(before[0], signal.SIGKILL)
    begin = time.monotonic()
    await until_health(family, "ready", "NOT_SERVING")
    assert "SERVING" == health_of(family, "live")
    provider.release()
    words = [answer.word for answer in await asyncio.gather(*calls)]
    assert {"SUCCEEDED", "unavailable"} >= set(words)
    await _until_replaced(family, before)
    after = family.children()
    assert (2, 1) == (len(after), len(set(before) & set(after)))
    again = [
        await call(family).execute("till.refund", {"order": f"A-{number}"}, f"k{number}")
        for number in range(8)
    ]
    assert {"SUCCEEDED"} == {answer.word for answer in again}
    assert time.monotonic() - begin < LEASE_SECONDS / 2
    await asyncio.to_thread(provider.wait_counts, {"refunds": 8, "charges": 0, "messages": 0})


async def _until_replaced(family: Family, before: list[int]) -> None:
    """A busy parent may be not ready for a moment, and ready again, before it has seen that anybody has ended."""
    await asyncio.to_thread(wait_until, lambda: len(set(family.children()) - set(before)) == 1, "another one")
    await until_health(family, "ready", "SERVING")


async def test_one_that_is_killed_again_and_again_is_started_more_and_more_slowly(
    start: Start, plain: dict[str, Any]
) -> None:
    family = start(**plain)
    for _ in range(2):
        before = family.children()
        os.kill(before[-1], signal.SIGKILL)
        await _until_replaced(family, before)
    pauses = re.findall(r"started again in ([0-9.]+) s", family.log())
    assert pauses in (["0.5", "1.0"], ["0.5", "0.5"])
    assert 2 == len(family.children())


async def test_a_frozen_child_fails_live_for_all_until_it_goes_on(
    start: Start, plain: dict[str, Any]
) -> None:
    family = start(**plain)
    frozen = family.children()[0]
    os.kill(frozen, signal.SIGSTOP)
    try:
        await until_health(family, "live", "NOT_SERVING")
        assert "NOT_SERVING" == health_of(family, "ready")
    finally:
        os.kill(frozen, signal.SIGCONT)
    await until_health(family, "ready", "SERVING")
    assert "SERVING" == health_of(family, "live")


async def test_sigterm_drains_all_and_leaves_nothing(
    start: Start, plain: dict[str, Any], provider: Provider, call: Callable[[Any], Caller]
) -> None:
    family = start(**plain)
    provider.hold("before")
    calls = [
        asyncio.ensure_future(call(family).execute("till.send", {"order": f"A-{number}"}, f"k{number}"))
        for number in range(8)
    ]
    await provider.until_held(8, calls)
    family.signal(signal.SIGTERM)
    await until_health(family, "ready", "NOT_SERVING")
    provider.release()
    assert {"SUCCEEDED"} == {answer.word for answer in await asyncio.gather(*calls)}
    assert 0 == await asyncio.to_thread(family.ended)
    assert set() == family.left()
    assert 8 == provider.counts()["messages"]
    port = int(family.target.rpartition(":")[2])
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


async def test_a_second_sigterm_hurries_all(
    start: Start, plain: dict[str, Any], provider: Provider, call: Callable[[Any], Caller]
) -> None:
    family = start(drain_seconds=600, **plain)
    provider.hold("before")
    calls = [
        asyncio.ensure_future(call(family).execute("till.refund", {"order": f"A-{number}"}, f"k{number}"))
        for number in range(4)
    ]
    await provider.until_held(4, calls)
    family.signal(signal.SIGTERM)
    await until_health(family, "ready", "NOT_SERVING")
    family.signal(signal.SIGTERM)
    assert {"DRAINING"} == {answer.word for answer in await asyncio.gather(*calls)}
    assert 0 == await asyncio.to_thread(family.ended)
    assert set() == family.left()


async def test_children_of_a_killed_parent_finish_what_runs_and_end(
    start: Start, plain: dict[str, Any], provider: Provider, call: Callable[[Any], Caller]
) -> None:
    family = start(**plain)
    provider.hold("before")
    calls = [
        asyncio.ensure_future(call(family).execute("till.send", {"order": f"A-{number}"}, f"k{number}"))
        for number in range(4)
    ]
    await provider.until_held(4, calls)
    family.signal(signal.SIGKILL)
    await asyncio.to_thread(family.ended)
    await asyncio.sleep(0.3)
    provider.release()
    assert {"SUCCEEDED"} == {answer.word for answer in await asyncio.gather(*calls)}
    await gone(family)
    assert 4 == provider.counts()["messages"]


async def test_who_owns_the_data_folder_next_finds_nobody_at_work_and_loses_nothing(
    start: Start, embedded: dict[str, Any], provider: Provider, call: Callable[[Any], Caller]
) -> None:
    family = start(**embedded)
    assert "SUCCEEDED" == (await call(family).execute("till.refund", {"order": "A-1"}, "done")).word
    provider.hold("before")
    caller = call(family)
    calls = [
        asyncio.ensure_future(caller.execute(f"till.{name}", {"order": "A-2"}, name))
        for name in ("refund", "send", "ponder")
    ]
    await provider.until_held(3, calls)
    # One cannot even notice that its parent has ended.
    os.kill(family.children()[0], signal.SIGSTOP)
    family.signal(signal.SIGKILL)
    await asyncio.to_thread(family.ended)
    await gone(family)
    assert {"unavailable"} == {answer.word for answer in await asyncio.gather(*calls)}
    heir = await asyncio.to_thread(start, **embedded)
    provider.release()
    following = call(heir)
    assert "SUCCEEDED" == (await following.execute("till.refund", {"order": "A-1"}, "done")).word
    assert "SUCCEEDED" == (await following.execute("till.refund", {"order": "A-2"}, "refund")).word
    assert "SUCCEEDED" == (await following.execute("till.ponder", {"order": "A-2"}, "ponder")).word
    assert "AMBIGUOUS" == state_of(await following.until("till.send", "send", "AMBIGUOUS"))
    heir.signal(signal.SIGTERM)
    assert 0 == await asyncio.to_thread(heir.ended)
    assert set() == heir.left()


async def test_a_folder_that_a_family_owns_is_refused_to_another(
    start: Start, embedded: dict[str, Any]
) -> None:
    family = start(**embedded)
    second = start(wait=False, **embedded)
    assert 3 == await asyncio.to_thread(second.ended)
    assert "in use" in second.log()
    assert "SERVING" == health_of(family, "ready")


async def test_the_end_of_the_embedded_postgres_ends_all(
    start: Start, embedded: dict[str, Any], data_folder: Path
) -> None:
    family = start(**embedded)
    postmaster = int((data_folder / "pgdata" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGKILL)
    assert 70 == await asyncio.to_thread(family.ended)
    assert set() == family.left()


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"app": "tests.faults.nowhere:app"}, "nowhere"), ({"identity_dev": False}, "PLACET_IDENTITY_DEV")],
)
async def test_what_is_set_up_wrongly_is_refused_once_and_leaves_nothing(
    start: Start, plain: dict[str, Any], fields: dict[str, Any], told: str
) -> None:
    family = start(wait=False, **{**plain, **fields})
    assert 3 == await asyncio.to_thread(family.ended)
    assert told in family.log()
    assert [] == family.children()


async def test_a_port_that_is_taken_is_refused(start: Start, plain: dict[str, Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        family = start(wait=False, port=taken.getsockname()[1], **plain)
        assert 3 == await asyncio.to_thread(family.ended)
    assert "cannot listen on" in family.log()


def test_what_was_set_before_does_not_reach_a_child() -> None:
    from placet_server.config import load_config

    given = load_config(
        dsn="postgresql://x",
        identity_dev=True,
        jwt_claim_scopes="",
        app=("a:b", "c:d"),
        metrics_port=0,
        tenant_share=0.5,
        token_file=Path("/x/y"),
    )
    before = {
        "PLACET_DATA_DIR": "/elsewhere",
        "PLACET_PORT": "1",
        "PLACET_SAMPLE_PROVIDER": "p",
        "PATH": "/bin",
    }
    environment = child_environment(given, before)
    assert ("p", "/bin") == (environment["PLACET_SAMPLE_PROVIDER"], environment["PATH"])
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PLACET_")]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        assert given == load_config()
