"""SIGKILL of who stores what is to be told, of who has taken it to send, and of who has sent it: it is told in the end,
under one id, and shown as it is.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from placet_server.store.connection import connect
from tests.core.receiver import SECRET, open_receiver
from tests.faults.caller import Caller
from tests.faults.processes import Server, Servers, until_so
from tests.postgres import Database

TARGETS = """
[[targets]]
tenant = "dev"
name = "desk"
url = "{url}"
types = ["*"]
secrets = [{{ file = "secret" }}]
"""


async def test_whoever_dies_of_it_somebody_is_told(
    database: Database, servers: Servers, open_folder: Path, call: Callable[[Server], Caller]
) -> None:
    (open_folder / "secret").write_text(SECRET)
    connection = await connect(database.dsn)
    async with open_receiver() as receiver:
        (open_folder / "callbacks.toml").write_text(TARGETS.format(url=receiver.url))
        settings: dict[str, Any] = {
            "dsn": database.dsn,
            "dsn_durability": "ephemeral",
            "store_connections_max": 3,
            "callback_file": open_folder / "callbacks.toml",
            "callback_hosts": "loopback",
        }
        storing = servers.start(kill_at="intent_persisted:till.grave", **settings)
        assert "unavailable" == (await call(storing).submit("till.grave", {"order": "A-1"}, "k")).word
        await asyncio.to_thread(storing.ended)
        stored = await connection.fetchrow("select * from deliveries")
        assert stored is not None
        assert ("PENDING", 0) == (stored["state"], stored["attempts"])
        for boundary, arrived in (("callback_dispatch_started", 0), ("callback_delivered", 1)):
            sending = await asyncio.to_thread(
                servers.start, kill_at=f"{boundary}:desk", wait=False, **settings
            )
            assert -signal.SIGKILL == await asyncio.to_thread(sending.ended)
            assert arrived == len(receiver.received)
            assert 1 == await connection.fetchval(
                "select count(*) from deliveries where state = 'PENDING' and lease_id is not null"
            )
            # As if its lease were over.
            await connection.execute("update deliveries set next_time = now()")
        await asyncio.to_thread(servers.start, **settings)

        async def is_delivered() -> bool:
            return bool("DELIVERED" == await connection.fetchval("select state from deliveries"))

        await until_so(is_delivered)
        assert 3 == await connection.fetchval("select attempts from deliveries")
        assert [str(stored["delivery_id"])] * 2 == [each.verified().id for each in receiver.received]
        assert 1 == len({each.body for each in receiver.received})
    await connection.close()
