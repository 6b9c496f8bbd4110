"""The main port: the contract's services, grpc.health.v1, and reflection for development.

A server of the library takes one call at a time: it asks for the next only once the event loop has come round and a
thread of the library has answered. Under load all others wait there unseen, while the loop finds nothing to do and the
writer of batches nothing to wait for. So where the port may be shared, several of them listen on it; the kernel
spreads the connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from placet_server.rpc.health import serving_status
from placet_server.rpc.interceptor import Interceptor
from placet_server.rpc.transport import Transport

LISTENERS = 4

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
        self._host = transport.address.rpartition(":")[0]
        first, self.port = self._bound(transport.address)
        more = LISTENERS - 1 if transport.reuse_port and hasattr(socket, "SO_REUSEPORT") else 0
        self._servers = [first, *(self._bound_again() for _ in range(more))]

    async def start(self) -> None:
        for server in self._servers:
            await server.start()
        await self.set_serving(True)

    async def run(self) -> None:
        """Keeps the port served until `stop`. Raises PortTaken, in a group, if it cannot."""
        async with asyncio.TaskGroup() as keeping:
            for number in range(len(self._servers)):
                keeping.create_task(self._keep(number))

    async def _keep(self, number: int) -> None:
        """One of the listeners.

        A method name that is not UTF-8 ends the library's accepting loop and with it every connection. Whoever sends
        one must not take the process down, so the port is opened again at once; callers lose their connections, not
        their actions.
        """
        while True:
            try:
                await self._servers[number].wait_for_termination()
            except Exception as error:
                log.warning("the transport failed and is opened again: %s", type(error).__name__)
            if self._stopping:
                return
            self._servers[number] = self._bound_again()
            await self._servers[number].start()

    async def set_serving(self, serving: bool) -> None:
        for service in ("", *self._names):
            await self._health.set(service, serving_status(serving))

    async def stop(self, grace_seconds: float | None) -> None:
        """Takes no new connections; running calls have the grace, then they are cancelled. None: at once."""
        self._stopping = True
        async with asyncio.TaskGroup() as stopping:
            for server in self._servers:
                stopping.create_task(server.stop(grace_seconds))

    def _bound_again(self) -> grpc.aio.Server:
        return self._bound(f"{self._host}:{self.port}")[0]

    def _bound(self, address: str) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=self._transport.options())
        others: Any = _Handlers()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, others)
        if self._transport.reflection:
            names = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, others)
        # Last: it answers whatever the others do not know.
        server.add_generic_rpc_handlers((*others.found, self._interceptor))
        return server, _bind(server, address, self._transport.credentials)


class _Handlers:
    """Takes the place of the server for services of the library. They would register each of their methods, too, and a
    server begins to wait anew for each that is registered whenever any call comes.
    """

    def __init__(self) -> None:
        self.found: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self.found += handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """The same ones by their methods."""


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise PortTaken(address) from error
