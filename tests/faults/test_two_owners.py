"""Two servers want the same store: one owner for a folder, and as many as there are for a database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.caller import Caller
from tests.faults.processes import Server, Servers
from tests.faults.zygote import REFUSED
from tests.postgres import Database


async def test_the_second_owner_of_a_folder_is_refused_and_told_who_has_it(
    open_folder: Path, servers: Servers, call: Callable[[Server], Caller]
) -> None:
    owner = servers.start(data_dir=open_folder / "data")
    second = servers.start(data_dir=open_folder / "data", wait=False)
    assert REFUSED == second.ended()
    assert str(open_folder / "data") in second.log()
    assert str(owner.pid) in second.log()
    assert "Traceback" not in second.log()
    assert "SUCCEEDED" == (await call(owner).execute("till.look", {}, "k")).word
    owner.kill()
    heir = servers.start(data_dir=open_folder / "data")
    assert "SUCCEEDED" == (await call(heir).execute("till.look", {}, "k")).word


@pytest.mark.both_servers
async def test_servers_that_start_at_once_on_an_empty_database_migrate_it_once(
    empty_database: Database, servers: Servers, call: Callable[[Server], Caller]
) -> None:
    dsn = empty_database.dsn
    started = [servers.start(dsn=dsn, dsn_durability="ephemeral", wait=False) for _ in range(3)]
    callers = [call(server.until_ready()) for server in started]
    answers = [await caller.execute("till.look", {}, "one key") for caller in callers]
    assert ["SUCCEEDED"] * 3 == [answer.word for answer in answers]
    assert [False, True, True] == [answer.attached for answer in answers]
