"""A parent's server dies while another one runs the child: the child ends once, and whoever runs the parent has it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from placet.aio import AsyncClient
from tests.faults.caller import Caller, check_chain
from tests.faults.processes import Provider, Server, Servers
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
