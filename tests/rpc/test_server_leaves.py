"""Starting where one cannot, draining, being told twice, being declared dead."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from placet import App
from placet.v1 import runtime_service_pb2 as pb
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet_server.app import PlacetServer
from placet_server.config import ConfigRefused
from placet_server.model.errors import StoreUnavailable
from placet_server.store import instance
from placet_server.store.connection import connect
from tests.postgres import Cluster, Database
from tests.rpc.servers import config_of, invocation, running
from tests.rpc.support import SERVICES, bearer, refusal

SERVE = """
import asyncio, sys
from placet import App
from placet_server import app as server
from placet_server.config import load_config

shop = App("shop")

@shop.tool("slow.wait", "read")
async def wait() -> str:
    print("entered", flush=True)
    await asyncio.Event().wait()
    return ""

sys.modules["shop"] = sys.modules["__main__"]
sys.exit(server.run(load_config(), lambda s: print(s.target, s.ports.health, flush=True)))
"""


class Tool:
    """A tool that runs until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.released = asyncio.Event()
        self.app = App("shop")

        @self.app.tool("slow.wait", "read")
        async def wait() -> str:
            self.entered.set()
            await self.released.wait()
            return "done"


async def health(target: str, service: str) -> Any:
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)).status


async def not_ready(target: str) -> None:
    """Waits until the server says that it is not."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = HealthStub(channel)
        async for answer in stub.Watch(health_pb2.HealthCheckRequest(service="ready")):
            if answer.status == health_pb2.HealthCheckResponse.NOT_SERVING:
                return


async def test_running_work_ends_within_the_grace_and_new_work_is_refused(
    database: Database, tmp_path: Path
) -> None:
    tool = Tool()
    async with running(config_of(database.dsn, tmp_path), [tool.app]) as client:
        call = client.execute("slow.wait", {})
        await tool.entered.wait()
        stopping = asyncio.ensure_future(client.server.stop(20))
        # Its first step, up to the first wait, refuses new work.
        await asyncio.sleep(0)
        refused = await refusal(client.execute("slow.wait", {}))
        serving = await health(client.server.target, "placet.v1.RuntimeService")
        tool.released.set()
        assert '"done"' == (await call).action.output_json
        async with asyncio.timeout(5):
            await stopping
    assert (grpc.StatusCode.UNAVAILABLE, "DRAINING") == (refused.code, refused.reason)
    assert health_pb2.HealthCheckResponse.NOT_SERVING == serving


@pytest.mark.parametrize("hurried", [False, True], ids=["end of grace", "told twice"])
async def test_work_that_outlasts_the_grace_is_cancelled_and_its_caller_told(
    hurried: bool, database: Database, tmp_path: Path
) -> None:
    tool = Tool()
    async with running(config_of(database.dsn, tmp_path), [tool.app]) as client:
        call = client.execute("slow.wait", {})
        await tool.entered.wait()
        async with asyncio.timeout(10):
            stopping = asyncio.ensure_future(client.server.stop(600 if hurried else 0.1))
            if hurried:
                client.server.hurry()
            refused = await refusal(call)
            await stopping
    assert (grpc.StatusCode.CANCELLED, "SHUTDOWN") == (refused.code, refused.reason)


async def test_watchers_do_not_keep_a_server_from_leaving(database: Database, tmp_path: Path) -> None:
    tool = Tool()
    async with running(config_of(database.dsn, tmp_path), [tool.app]) as client:
        call = client.execute("slow.wait", {})
        await tool.entered.wait()
        listed = await client.runtime.ListActions(pb.ListActionsRequest(), metadata=client.metadata)
        request = pb.WatchActionRequest(action_id=listed.actions[0].action_id)
        watching = client.runtime.WatchAction(request, metadata=client.metadata)
        await watching.read()
        async with asyncio.timeout(10):
            await client.server.stop(0)
            await refusal(call)


async def test_the_health_port_knows_live_ready_and_storage(database: Database, tmp_path: Path) -> None:
    async with running(config_of(database.dsn, tmp_path)) as client:
        for service in ("", "live", "ready", "storage"):
            assert health_pb2.HealthCheckResponse.SERVING == await health(
                client.server.health_target, service
            )
        for service in ("", *(service.full_name for service in SERVICES)):
            assert health_pb2.HealthCheckResponse.SERVING == await health(client.server.target, service)


async def test_a_server_that_was_declared_dead_says_so_and_takes_nothing(
    database: Database, tmp_path: Path
) -> None:
    tool = Tool()
    config = config_of(database.dsn, tmp_path, lease_seconds=1.0)
    async with running(config, [tool.app]) as client, asyncio.timeout(15):
        connection = await connect(database.dsn)
        await instance.mark_all_others_dead(connection, [])
        connection.terminate()
        assert "declared this one dead" in await client.server.lost()
        refused = await refusal(client.execute("slow.wait", {}))
    assert "DRAINING" == refused.reason


CONNECTED = """
select count(*) from pg_stat_activity where application_name like 'placet %' and datname = current_database()
"""


async def test_a_taken_port_is_told_and_everything_is_closed_again(
    database: Database, tmp_path: Path
) -> None:
    async with running(config_of(database.dsn, tmp_path)) as client:
        for field, taken in (("port", client.server.ports.main), ("health_port", client.server.ports.health)):
            second = PlacetServer(config_of(database.dsn, tmp_path, **{field: taken}))
            with pytest.raises(ConfigRefused, match=str(taken)):
                await second.start()
    connection = await connect(database.dsn)
    # Postgres takes a moment to see that a connection is gone.
    async with asyncio.timeout(10):
        while await connection.fetchval(CONNECTED):
            await connection.execute("select pg_sleep(0.02)")
    connection.terminate()


async def test_a_start_waits_for_a_store_that_is_late_and_not_for_ever(
    database: Database, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = f"{database.name}_later"
    owner = await connect(cluster.admin_dsn)
    await owner.execute(f"alter database {database.name} rename to {later}")
    with pytest.raises(StoreUnavailable):
        await PlacetServer(config_of(database.dsn, tmp_path, store_wait_seconds=0)).start()
    server = PlacetServer(config_of(database.dsn, tmp_path))
    starting = asyncio.ensure_future(server.start())
    async with asyncio.timeout(20):
        while "the store does not answer" not in caplog.text:
            await owner.execute("select pg_sleep(0.02)")
        await owner.execute(f"alter database {later} rename to {database.name}")
        await starting
    await server.stop(0)
    await owner.close()


async def test_an_app_that_is_refused_stops_the_start(database: Database, tmp_path: Path) -> None:
    app = App("shop")

    @app.tool("a.b", "read", hazards=["delete"])
    async def delete(x: str) -> str:
        return x

    server = PlacetServer(config_of(database.dsn, tmp_path), apps=[app])
    with pytest.raises(ConfigRefused, match="shop"):
        await server.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_a_second_one_hurries(
    number: int, database: Database, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PLACET_")} | {
        "PLACET_DSN": database.dsn,
        "PLACET_DSN_DURABILITY": "ephemeral",
        "PLACET_IDENTITY_DEV": "1",
        "PLACET_TOKEN_FILE": str(tmp_path / "token"),
        "PLACET_PORT": "0",
        "PLACET_HEALTH_PORT": "0",
        "PLACET_APP": "shop:shop",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVE, env=environment, stdout=PIPE)
    try:
        async with asyncio.timeout(30):
            assert server.stdout is not None
            target, health_port = (await server.stdout.readline()).decode().split()
            token = json.loads((tmp_path / "token").read_text())["token"]
            async with grpc.aio.insecure_channel(target) as channel:
                stub: Any = RuntimeServiceStub(channel)
                request = pb.ExecuteRequest(invocation=invocation("slow.wait", {}))
                call = stub.Execute(request, metadata=bearer(token))
                assert b"entered\n" == await server.stdout.readline()
                server.send_signal(number)
                await not_ready(f"127.0.0.1:{health_port}")
                assert server.returncode is None
                server.send_signal(number)
                assert "SHUTDOWN" == (await refusal(call)).reason
            assert 0 == await server.wait()
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()
