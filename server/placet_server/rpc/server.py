"""The main port: the contract's services, grpc.health.v1, and reflection for development."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from placet_server.rpc.health import serving_status
from placet_server.rpc.interceptor import Interceptor
from placet_server.rpc.transport import Transport

log = logging.getLogger("placet.rpc")


class PortTaken(Exception):
    """Somebody else listens there."""

    def __init__(self, address: str) -> None:
        super().__init__(f"cannot listen on {address}: it is taken, or not an address of this machine")


class RpcServer:
    """Belongs to the event loop that made it."""

    def __init__(self, transport: Transport, interceptor: Interceptor, services: Sequence[str]) -> None:
        """Binds; `port` says where. `services`: their full names. Raises PortTaken."""
        self._transport = transport
        self._interceptor = interceptor
        self._names = tuple(services)
        self._health = health.aio.HealthServicer()
        self._stopping = False
        self._server, self.port = self._bound(transport.address)

    async def start(self) -> None:
        await self._server.start()
        await self.set_serving(True)

    async def run(self) -> None:
        """Keeps the port served until `stop`. Raises PortTaken if it cannot.

        A method name that is not UTF-8 ends the library's accepting loop and with it every connection. Whoever sends
        one must not take the process down, so the port is opened again at once; callers lose their connections, not
        their actions.
        """
        while True:
            try:
                await self._server.wait_for_termination()
            except Exception as error:
                log.warning("the transport failed and is opened again: %s", type(error).__name__)
            if self._stopping:
                return
            host = self._transport.address.rpartition(":")[0]
            self._server, _ = self._bound(f"{host}:{self.port}")
            await self._server.start()

    async def set_serving(self, serving: bool) -> None:
        for service in ("", *self._names):
            await self._health.set(service, serving_status(serving))

    async def stop(self, grace_seconds: float | None) -> None:
        """Takes no new connections; running calls have the grace, then they are cancelled. None: at once."""
        self._stopping = True
        await self._server.stop(grace_seconds)

    def _bound(self, address: str) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=self._transport.options())
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._transport.reflection:
            names = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)
        # Last: it answers whatever the others do not know.
        server.add_generic_rpc_handlers((self._interceptor,))
        return server, _bind(server, address, self._transport.credentials)


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise PortTaken(address) from error
