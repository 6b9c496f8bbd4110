"""SIGKILL of who asks a lookup, before it asks and after it has written the answer: the effect is known in the end, it
happened once, and the action ends once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.caller import Caller, check_chain, effect_of
from tests.faults.processes import Provider, Server, Servers
from tests.postgres import Database


@pytest.mark.both_servers
@pytest.mark.parametrize("boundary", ["reconciliation_started", "reconciliation_completed"])
async def test_what_it_asked_about_is_known_in_the_end(
    boundary: str,
    database: Database,
    servers: Servers,
    provider: Provider,
    call: Callable[[Server], Caller],
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "store_connections_max": 3}
    asking = servers.start(kill_at=f"{boundary}:till.pay", **store)
    paying = servers.start(kill_at="provider_response_received:till.pay", **store)
    lost = await call(paying).execute("till.pay", {"order": "A-1"}, "k")
    assert "unavailable" == lost.word
    assert -signal.SIGKILL == await asyncio.to_thread(asking.ended)
    survivor = call(servers.start(**store))
    if boundary == "reconciliation_started":
        # What the dead one had taken is asked about again in a minute, or when somebody wants to know.
        action = await survivor.until("till.pay", "k", "AMBIGUOUS")
        assert "" == await survivor.reconcile(action.action_id)
    action = await survivor.until("till.pay", "k", "SUCCEEDED")
    assert (1, "DONE", {"refunds": 0, "charges": 1, "messages": 0}) == (
        action.attempt,
        effect_of(action),
        provider.counts(),
    )
    assert 1 == (await check_chain(database.dsn, action)).count("settled")
