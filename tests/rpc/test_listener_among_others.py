"""One process listens several times on a port that may be shared, as each listener takes one call at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from placet.v1 import runtime_service_pb2 as pb
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet_server.rpc.server import LISTENERS
from tests.rpc.support import Setup, bearer, serving
from tests.rpc.test_wire_garbage import SENT, send

CONNECTIONS = 4 * LISTENERS
SHARED = {"reuse_port": True}
_LISTENING = "0A"


def listener_count(port: int) -> int:
    """Of sockets, in all processes."""
    tables = (Path(table).read_text().splitlines()[1:] for table in ("/proc/net/tcp", "/proc/net/tcp6"))
    rows = [row.split() for table in tables for row in table]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == _LISTENING for row in rows)


async def call_on_each_of_many_connections(target: str) -> None:
    """The kernel spreads them, so each listener has some. Fails if one of them is not answered."""

    async def call() -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            stub = RuntimeServiceStub(channel)
            await stub.GetCaller(pb.GetCallerRequest(), metadata=bearer(), wait_for_ready=True)

    async with asyncio.timeout(10):
        await asyncio.gather(*(call() for _ in range(CONNECTIONS)))


@pytest.mark.parametrize("is_shared", [True, False])
async def test_it_listens_several_times_only_where_the_port_may_be_shared(is_shared: bool) -> None:
    async with serving(Setup(transport={"reuse_port": is_shared})) as running:
        port = running.server.port
        assert (LISTENERS if is_shared else 1) == listener_count(port)
        await call_on_each_of_many_connections(running.target)
    assert 0 == listener_count(port)


async def test_one_that_fails_is_opened_again_and_no_other_is_lost() -> None:
    async with serving(Setup(transport=SHARED)) as running:
        for _ in range(CONNECTIONS):
            await send(running, SENT["a path that is not UTF-8"])
        async with asyncio.timeout(10):
            while LISTENERS != listener_count(running.server.port):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await call_on_each_of_many_connections(running.target)


async def test_no_call_pays_for_methods_that_are_waited_for_by_themselves() -> None:
    async with serving(Setup(transport={"reflection": True})) as running:
        await call_on_each_of_many_connections(running.target)
        waiting = [repr(task) for task in asyncio.all_tasks()]
        assert [] == [task for task in waiting if "_request_registered_call" in task]
        assert 1 == sum("_request_call" in task for task in waiting)
