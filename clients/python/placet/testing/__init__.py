"""Real servers for tests, each on a fresh database of this process's own Postgres. Needs `placet[server,embedded]`.

    async with placet.testing.server(app) as server:
        result = await server.client().call("orders.lookup", {"order": "A-1001"})

`server` runs in this process and loop, and its clock can be moved. `process` runs in one of its own, which can be
killed: at any time, or at a crash boundary that the server names. `connector` serves an app to a server from outside
it. `FakeContext` and `FakeSyncContext` are for handlers alone, without any server.
"""

from placet.testing.connectors import connector
from placet.testing.contexts import FakeContext, FakeSyncContext
from placet.testing.in_process import MovedClock, Server, server
from placet.testing.own_process import Process, process
from placet.testing.scratch import database

__all__ = [
    "FakeContext",
    "FakeSyncContext",
    "MovedClock",
    "Process",
    "Server",
    "connector",
    "database",
    "process",
    "server",
]
