"""SIGKILL of who has parked a parent, of who has ended its step, and of who goes on with it: it is woken all the same,
by whoever is there, and nothing of its step is done twice.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from placet.aio import AsyncClient
from placet_server.store.connection import connect
from tests.faults.caller import Caller, check_chain
from tests.faults.processes import Server, Servers, until_so
from tests.faults.test_approval_killed import anna, bury
from tests.postgres import Database


async def test_whoever_dies_of_it_a_parked_parent_goes_on_and_its_step_is_done_once(
    database: Database, servers: Servers, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {
        "dsn": database.dsn,
        "dsn_durability": "ephemeral",
        "store_connections_max": 3,
        "dev_people": "anna:finance",
    }
    # It votes, sweeps and rescues, and takes nothing from queues.
    witness = await asyncio.to_thread(servers.start, queue_slots=0, **store)
    asked = (await call(witness).submit("till.settle", {"order": "A-1"}, "k")).action
    assert asked is not None
    connection = await connect(database.dsn)

    async def stands(state: str, cause: str) -> None:
        async def is_so() -> bool:
            row = await connection.fetchrow(
                "select state, cause from actions where action_id = $1", asked.action_id
            )
            return row is not None and (state, cause) == (row["state"], row["cause"])

        await until_so(is_so)

    async def dies(boundary: str) -> None:
        mortal = await asyncio.to_thread(servers.start, kill_at=boundary, wait=False, **store)
        assert -signal.SIGKILL == await asyncio.to_thread(mortal.ended)

    await dies("parked:till.settle")
    await stands("WAITING", "CHILD")
    async with AsyncClient.connect(witness.target, token=witness.token) as client, anna(witness) as voter:
        told = await client.get(asked.action_id)
        (wait,) = told.outcome.waits
        assert "bury" == wait.step_path
        digest = (await voter.approval(wait.approval_id)).digest
        await voter.decide(wait.approval_id, "approve", digest=digest, decision_id="d")
    await dies("step_ended:till.grave")
    # Nobody has woken it: the sweep does.
    await stands("QUEUED", "WOKEN")
    await dies("claimed:till.settle")
    await bury(connection)
    await stands("QUEUED", "INSTANCE_LOST")
    await connection.close()
    await asyncio.to_thread(servers.start, **store)
    ended = await call(witness).until("till.settle", "k", "SUCCEEDED")
    assert (asked.action_id, 2) == (ended.action_id, ended.attempt)
    async with AsyncClient.connect(witness.target, token=witness.token) as client:
        (step,) = [each async for each in client.list(parent_id=ended.action_id)]
        step = await client.get(step.action_id)
    begun = ["approval_decided", "attempt_started", "settled"]
    assert begun == [type_ for type_ in await check_chain(database.dsn, step) if type_ in begun]
    life = await check_chain(database.dsn, ended)
    parts = ["parked", "requeued", "resumed", "requeued", "attempt_started", "settled"]
    assert ["admitted", "attempt_started", "effect_started", *parts] == life
