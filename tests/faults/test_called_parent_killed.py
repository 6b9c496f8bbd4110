"""SIGKILL of a server that is called to run something COMPOSED: before it is stored, once it is, as its step begins and
as it ends. The same request with the same key then tells of one action, and its step is done once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from placet_server.store.connection import connect
from tests.faults.caller import Caller, check_chain, state_of
from tests.faults.processes import Provider, Server, Servers
from tests.faults.test_approval_killed import bury
from tests.postgres import Database


async def test_whenever_its_server_dies_it_is_one_action_and_its_step_is_done_once(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "store_connections_max": 3}
    boundaries = {
        # How it is left, and in which attempt it then ends.
        "before_intent_persistence:till.tour": ("none", 1),
        "intent_persisted:till.tour": ("RUNNING", 2),
        "before_provider_call:till.refund": ("RUNNING", 2),
        "provider_response_received:till.refund": ("RUNNING", 2),
        "provider_response_received:till.tour": ("RUNNING", 2),
        "result_persisted:till.tour": ("SUCCEEDED", 1),
    }
    # It rescues, and takes nothing from queues.
    witness = call(await asyncio.to_thread(servers.start, queue_slots=0, **store))
    mortals = [await asyncio.to_thread(servers.start, kill_at=each, **store) for each in boundaries]
    calls = [
        asyncio.ensure_future(call(mortal).execute("till.tour", {"order": f"A-{key}"}, key))
        for key, mortal in zip(boundaries, mortals, strict=True)
    ]
    for mortal in mortals:
        assert -signal.SIGKILL == await asyncio.to_thread(mortal.ended)
    assert {"unavailable"} == {answer.word for answer in await asyncio.gather(*calls)}
    left = {key: await witness.by_key("till.tour", key) for key in boundaries}
    assert {key: state for key, (state, _) in boundaries.items()} == {
        key: "none" if action is None else state_of(action) for key, action in left.items()
    }
    connection = await connect(database.dsn)
    await bury(connection)
    await connection.close()
    desk = call(await asyncio.to_thread(servers.start, **store))
    for key, (_, attempt) in boundaries.items():
        answer = await desk.execute("till.tour", {"order": f"A-{key}"}, key)
        assert ("SUCCEEDED", attempt) == (answer.word, answer.action and answer.action.attempt)
        again = await desk.execute("till.tour", {"order": f"A-{key}"}, key)
        assert answer.action is not None
        assert again.action is not None
        assert (answer.action.action_id, answer.output) == (again.action.action_id, again.output)
        assert (left[key] or answer.action).action_id == answer.action.action_id
        life = await check_chain(database.dsn, answer.action)
        assert (["admitted"], ["settled"], attempt) == (life[:1], life[-1:], life.count("attempt_started"))
    assert len(boundaries) == provider.counts()["refunds"]
