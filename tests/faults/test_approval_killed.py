"""SIGKILL of who has counted the deciding vote, of who has claimed what it allows, and of who has just begun it: a yes
counts once, what was not begun is begun by somebody else, and what may have begun is said to be in doubt.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from placet.aio import AsyncClient
from placet.errors import PlacetError
from placet.v1 import decision_pb2
from placet_server.store.connection import Connection, connect
from tests.faults.caller import Caller, check_chain, reason_of
from tests.faults.processes import Server, Servers
from tests.postgres import Database

OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]


def token_of(server: Server, name: str) -> str:
    token: str = json.loads(Path(f"{server.token_file}.{name}").read_text())["token"]
    return token


@asynccontextmanager
async def anna(server: Server) -> AsyncIterator[AsyncClient]:
    """Who may say yes."""
    async with grpc.aio.insecure_channel(server.target, OPTIONS) as channel:
        yield AsyncClient(channel, token_of(server, "anna"))


async def bury(connection: Connection) -> None:
    """Whoever does not live any more is known to be dead at once."""
    await connection.execute(
        "update instances set state = 'DEAD', dead_time = now() where state = 'ALIVE' and queue_slots > 0"
    )


async def test_whoever_dies_of_it_a_yes_counts_once_and_nothing_is_said_to_be_done_that_may_not_be(
    database: Database, servers: Servers, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {
        "dsn": database.dsn,
        "dsn_durability": "ephemeral",
        "store_connections_max": 3,
        "dev_people": "anna:finance",
    }
    voting = servers.start(kill_at="decision_persisted:till.grave", queue_slots=0, **store)
    asked = (await call(voting).submit("till.grave", {"order": "A-1"}, "k")).action
    assert asked is not None
    approval_id = asked.outcome.waits[0].approval_id
    async with anna(voting) as voter:
        digest = (await voter.approval(approval_id)).digest
        with pytest.raises(PlacetError):
            await voter.decide(approval_id, "approve", digest=digest, decision_id="d", timeout=5)
    assert -signal.SIGKILL == await asyncio.to_thread(voting.ended)

    connection = await connect(database.dsn)
    for boundary, begun in (("claimed", 0), ("approval_consumed", 1)):
        starting = await asyncio.to_thread(
            servers.start, kill_at=f"{boundary}:till.grave", wait=False, **store
        )
        assert -signal.SIGKILL == await asyncio.to_thread(starting.ended)
        assert begun == await connection.fetchval("select count(consume_time) from approvals")
        await bury(connection)
    await connection.close()

    witness = await asyncio.to_thread(servers.start, **store)
    ended = await call(witness).until("till.grave", "k", "AMBIGUOUS")
    # The first claim was no attempt: nothing had begun under it.
    assert (asked.action_id, 2, "EFFECT_AMBIGUOUS") == (ended.action_id, ended.attempt, reason_of(ended))
    async with anna(witness) as voter:
        again = await voter.decide(approval_id, "approve", digest=digest, decision_id="d")
        assert (decision_pb2.APPROVAL_STATE_GRANTED, 1) == (again.state, len(again.decisions))
        with pytest.raises(PlacetError) as conflict:
            await voter.decide(approval_id, "deny", digest=digest, decision_id="d")
        assert "DECISION_CONFLICT" == conflict.value.reason
    told = await check_chain(database.dsn, ended)
    assert 1 == told.count("approval_decided")
    assert 2 == told.count("attempt_started")
