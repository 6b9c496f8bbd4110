"""The main port: the contract's services, grpc.health.v1, and reflection for development."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from placet_server.rpc.health import serving_status
from placet_server.rpc.interceptor import Interceptor
from placet_server.rpc.transport import Transport


class PortTaken(Exception):
    """Somebody else listens there."""

    def __init__(self, address: str) -> None:
        super().__init__(f"cannot listen on {address}: it is taken, or not an address of this machine")


class RpcServer:
    """Belongs to the event loop that made it."""

    def __init__(self, transport: Transport, interceptor: Interceptor, services: Sequence[str]) -> None:
        """Binds; `port` says where. `services`: their full names. Raises PortTaken."""
        self._health = health.aio.HealthServicer()
        self._services = ("", *services)
        self._server = grpc.aio.server(options=transport.options())
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if transport.reflection:
            names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)
        # Last: it answers whatever the others do not know.
        self._server.add_generic_rpc_handlers((interceptor,))
        self.port = _bind(self._server, transport)

    async def start(self) -> None:
        await self._server.start()
        await self.set_serving(True)

    async def set_serving(self, serving: bool) -> None:
        for service in self._services:
            await self._health.set(service, serving_status(serving))

    async def stop(self, grace_seconds: float | None) -> None:
        """Takes no new connections; running calls have the grace, then they are cancelled. None: at once."""
        await self._server.stop(grace_seconds)


def _bind(server: grpc.aio.Server, transport: Transport) -> int:
    try:
        if transport.credentials is None:
            return server.add_insecure_port(transport.address)
        return server.add_secure_port(transport.address, transport.credentials)
    except RuntimeError as error:
        raise PortTaken(transport.address) from error
