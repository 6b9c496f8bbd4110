"""A whole server over a database of its own, and a client of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from placet import App
from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet.v1.catalog_service_pb2_grpc import CatalogServiceStub
from placet.v1.operations_service_pb2_grpc import OperationsServiceStub
from placet.v1.recovery_service_pb2_grpc import RecoveryServiceStub
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet_server.app import PlacetServer
from placet_server.config import Config, load_config
from placet_server.core.execution.engine import ExecutionSettings
from tests.rpc.support import bearer

if TYPE_CHECKING:
    from placet.v1.catalog_service_pb2_grpc import CatalogServiceAsyncStub
    from placet.v1.operations_service_pb2_grpc import OperationsServiceAsyncStub
    from placet.v1.recovery_service_pb2_grpc import RecoveryServiceAsyncStub
    from placet.v1.runtime_service_pb2_grpc import RuntimeServiceAsyncStub


@dataclass(kw_only=True)
class Client:
    server: PlacetServer
    channel: grpc.aio.Channel
    metadata: tuple[tuple[str, str], ...]

    @property
    def runtime(self) -> RuntimeServiceAsyncStub:
        return RuntimeServiceStub(self.channel)

    @property
    def catalog(self) -> CatalogServiceAsyncStub:
        return CatalogServiceStub(self.channel)

    @property
    def operations(self) -> OperationsServiceAsyncStub:
        return OperationsServiceStub(self.channel)

    @property
    def recovery(self) -> RecoveryServiceAsyncStub:
        return RecoveryServiceStub(self.channel)

    def execute(self, capability: str, value: Any, key: str = "", *, timeout: float | None = 20) -> Any:
        request = pb.ExecuteRequest(invocation=invocation(capability, value, key))
        return self.runtime.Execute(request, metadata=self.metadata, timeout=timeout)


def invocation(capability: str, value: Any, key: str = "") -> action_pb2.Invocation:
    return action_pb2.Invocation(
        capability=capability,
        input_json=json.dumps(value),
        options=action_pb2.InvocationOptions(idempotency_key=key),
    )


def config_of(dsn: str, folder: Path, **fields: Any) -> Config:
    chosen = {
        "dsn": dsn,
        "dsn_durability": "ephemeral",
        "identity_dev": True,
        "token_file": folder / "token",
        "port": 0,
        "health_port": 0,
        "auto_migrate": False,
    }
    return load_config(**(chosen | fields))


@asynccontextmanager
async def running(
    config: Config, apps: Sequence[App] = (), settings: ExecutionSettings | None = None
) -> AsyncIterator[Client]:
    server = PlacetServer(config, apps=apps, settings=settings)
    await server.start()
    stopped = False
    try:
        told = json.loads(await asyncio.to_thread(config.token_file.read_text))
        async with grpc.aio.insecure_channel(told["target"]) as channel:
            yield Client(server=server, channel=channel, metadata=bearer(told["token"]))
    finally:
        if not stopped:
            await server.stop(0)
