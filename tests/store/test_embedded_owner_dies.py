"""An embedded Postgres belongs to one process, ends with it however it ends, and loses nothing by that."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

from placet_server.embedded.error import FolderInUse
from placet_server.embedded.server import EmbeddedPostgres
from tests.store.support import Owner, runs, start_owner, wait_until


@pytest.fixture
def owners() -> Iterator[list[Owner]]:
    started: list[Owner] = []
    yield started
    for owner in started:
        if owner.process.poll() is None:
            owner.process.kill()
        owner.process.communicate()


async def execute(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@pytest.mark.parametrize("how", ["plain", "thread", "fork"])
async def test_killing_the_owner_ends_postgres_and_keeps_what_was_committed(
    data_folder: Path, owners: list[Owner], how: str
) -> None:
    owner = start_owner(data_folder, how)
    owners.append(owner)
    await execute(owner.dsn, "create table kept as select 7 as value")

    owner.process.kill()
    owner.process.wait()

    wait_until(lambda: not any(runs(pid) for pid in owner.server_ids))
    if how == "fork":
        os.killpg(owner.process.pid, signal.SIGKILL)
    with EmbeddedPostgres(data_folder) as server:
        assert 7 == await execute(server.dsn, "select value from kept")


def test_killing_the_owner_deletes_the_folder_of_an_ephemeral_store(owners: list[Owner]) -> None:
    owner = start_owner(None)
    owners.append(owner)

    owner.process.kill()
    owner.process.wait()

    wait_until(lambda: not owner.folder.exists())
    assert [] == [pid for pid in owner.server_ids if runs(pid)]


def test_a_second_owner_is_refused_and_told_who_the_first_is(data_folder: Path, owners: list[Owner]) -> None:
    owner = start_owner(data_folder)
    owners.append(owner)

    with pytest.raises(FolderInUse) as refused:
        EmbeddedPostgres(data_folder).start()

    assert (data_folder, owner.process.pid) == (refused.value.folder, refused.value.owner_pid)
    assert runs(owner.server_pid)


def test_of_many_that_start_at_once_in_a_new_folder_one_wins(open_folder: Path) -> None:
    servers = [EmbeddedPostgres(open_folder / "new" / "data") for _ in range(4)]

    def start(server: EmbeddedPostgres) -> bool:
        try:
            server.start()
        except FolderInUse:
            return False
        return True

    with ThreadPoolExecutor(len(servers)) as threads:
        won = list(threads.map(start, servers))
    for server in servers:
        server.stop()
    assert [True] == [outcome for outcome in won if outcome]


def test_a_server_that_nobody_owns_any_more_is_ended_by_the_next_owner(
    data_folder: Path, owners: list[Owner]
) -> None:
    owner = start_owner(data_folder)
    owners.append(owner)
    for watchdog in children_of(owner.process.pid):
        for watcher in [*children_of(watchdog), watchdog]:
            if watcher != owner.server_pid:
                os.kill(watcher, signal.SIGKILL)
    owner.process.kill()
    owner.process.wait()
    assert runs(owner.server_pid)

    with EmbeddedPostgres(data_folder) as server:
        assert owner.server_pid != server.pid
    assert not runs(owner.server_pid)


def test_a_server_left_frozen_is_ended_by_the_next_owner(data_folder: Path, owners: list[Owner]) -> None:
    owner = start_owner(data_folder)
    owners.append(owner)
    for pid in owner.server_ids:
        os.kill(pid, signal.SIGSTOP)
    owner.process.kill()
    owner.process.wait()

    with EmbeddedPostgres(data_folder) as server:
        assert owner.server_pid != server.pid


def test_stopping_leaves_no_process_and_is_idempotent(data_folder: Path) -> None:
    server = EmbeddedPostgres(data_folder)
    server.start()
    process_ids = server.process_ids
    server.stop()
    server.stop()
    assert ([], False) == ([pid for pid in process_ids if runs(pid)], server.alive)


def test_a_pid_file_from_before_a_power_loss_names_a_stranger_and_hinders_nobody(data_folder: Path) -> None:
    server = EmbeddedPostgres(data_folder)
    server.start()
    lines = (server.folder / "pgdata" / "postmaster.pid").read_text().splitlines()
    server.stop()
    stranger = str(os.getppid())
    (data_folder / "pgdata" / "postmaster.pid").write_text("\n".join([stranger, *lines[1:]]) + "\n")

    with server:
        assert int(stranger) != server.pid


def test_a_frozen_server_is_stopped_all_the_same(data_folder: Path) -> None:
    server = EmbeddedPostgres(data_folder, stop_timeout_seconds=0.2)
    server.start()
    process_ids = server.process_ids
    for pid in process_ids:
        os.kill(pid, signal.SIGSTOP)
    server.stop()
    wait_until(lambda: not any(runs(pid) for pid in process_ids))


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]
