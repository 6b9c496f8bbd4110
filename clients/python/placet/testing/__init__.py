"""Real servers for tests, each on a fresh database of this process's own Postgres. Needs `placet[server,embedded]`.

    async with placet.testing.server(app) as server:
        result = await server.client().call("orders.lookup", {"order": "A-1001"})

`server` runs in this process and loop, and its clock can be moved. `process` runs in one of its own, which can be
killed: at any time, or at a crash boundary that the server names. `connector` serves an app to a server from outside
it. `FakeContext` and `FakeSyncContext` are for handlers alone, without any server.

Agents are tested with models that say what a script says; `server.models` has what they were asked:

    models = {"fast": [Say("I look.", call("orders.lookup", order="A-1001")), Say("It is paid.")]}
    async with placet.testing.server(app, models=models) as server:
        reply = await server.client().ask("desk.helper", "Where is A-1001?")
        [called] = await server.calls(reply.action_id)
"""

from placet.testing.connectors import connector
from placet.testing.contexts import FakeContext, FakeSyncContext
from placet.testing.in_process import MovedClock, Server, server
from placet.testing.model_script import Fail, Say, call
from placet.testing.own_process import Process, process
from placet.testing.scratch import database
from placet.testing.scripted import Called

__all__ = [
    "Called",
    "Fail",
    "FakeContext",
    "FakeSyncContext",
    "MovedClock",
    "Process",
    "Say",
    "Server",
    "call",
    "connector",
    "database",
    "process",
    "server",
]
