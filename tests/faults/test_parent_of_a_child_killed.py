"""A parent's server dies while another one runs the child, or between two of them: each child ends once, whoever runs
the parent has it, and who waits behind the parent gets its turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from placet.aio import AsyncClient
from placet_server.store.connection import connect
from tests.faults.caller import Caller, check_chain, state_of
from tests.faults.processes import Provider, Server, Servers, until_so
from tests.postgres import Database


async def test_a_parent_killed_while_its_child_runs_elsewhere_is_one_effect(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    # The one calls and takes nothing from queues; the other takes the child.
    mortal, witness = servers.start(wait=False, queue_slots=0, **store), servers.start(wait=False, **store)
    mortal.until_ready()
    witness.until_ready()
    provider.hold("after")
    calling = asyncio.ensure_future(call(mortal).execute("till.ship", {"order": "A-1"}, "k"))
    await provider.until_held(1, [calling])
    mortal.kill()
    assert "SUCCEEDED" != (await calling).word
    provider.release()
    answer = await call(witness).execute("till.ship", {"order": "A-1"}, "k")
    assert answer.action is not None
    async with AsyncClient.connect(witness.target, token=witness.token) as client:
        (child,) = [each async for each in client.list(parent_id=answer.action.action_id)]
        assert ("notice", answer.action.action_id, 1) == (child.step_path, child.root_id, child.attempt)
        ended = await client.get(child.action_id)
    assert json.loads(answer.output) == json.loads(ended.output_json)
    assert {"refunds": 0, "charges": 0, "messages": 1} == provider.counts()
    for action in (answer.action, ended):
        await check_chain(database.dsn, action)


async def test_a_parent_killed_between_its_steps_repeats_none_and_holds_up_nobody(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    witness = servers.start(wait=False, queue_slots=0, **store)
    mortal = servers.start(wait=False, lease_seconds=120, **store)
    caller = call(witness.until_ready())
    first = await caller.submit("till.parcel", {"order": "A", "stuck": True}, "A")
    second = await caller.submit("till.parcel", {"order": "B"}, "B")
    assert first.action is not None
    parent_id = first.action.action_id
    async with AsyncClient.connect(witness.target, token=witness.token) as client:

        async def steps() -> list[tuple[str, str, int]]:
            children = [each async for each in client.list(parent_id=parent_id)]
            return sorted((child.step_path, state_of(child), child.attempt) for child in children)

        ended = [("pack", "SUCCEEDED", 1), ("pick", "SUCCEEDED", 1)]

        async def both_have_ended() -> bool:
            return ended == await steps()

        await until_so(both_have_ended)
        mortal.kill()
        await _long_ago(database.dsn, mortal)
        # While the first one waited for a step it lent its place, so the second one may have taken some of its own.
        assert provider.counts()["messages"] in range(2, 6)
        assert "SUCCEEDED" == second.word
        servers.start(wait=False, lease_seconds=120, **store)
        assert 1 < (await caller.until("till.parcel", "A", "SUCCEEDED")).attempt
        await caller.until("till.parcel", "B", "SUCCEEDED")
        assert [*ended, ("post", "SUCCEEDED", 1)] == await steps()
    assert {"refunds": 0, "charges": 0, "messages": 6} == provider.counts()


async def _long_ago(dsn: str, server: Server) -> None:
    """As if it had been dead for as long as its lease, and a slot's hold, last."""
    connection = await connect(dsn)
    try:
        await connection.execute(
            "update instances set started_time = now() - interval '1 h', heartbeat_time = now() - interval '1 h'"
            " where boot_id = $1",
            server.boot_id,
        )
        await connection.execute("update slots set hold_time = now()")
    finally:
        await connection.close()
