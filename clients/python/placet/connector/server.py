"""Listening, health, draining: a connector's life."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from placet.app import App
from placet.connection import Tls, pem
from placet.connector.attempt_table import WAITING_SHARE, AttemptTable
from placet.connector.service import Service
from placet.connector.token import TokenCheck
from placet.supervisor import Supervisor
from placet.v1.connector_service_pb2_grpc import add_ConnectorServiceServicer_to_server

LOOKUP_THREADS_MAX = 8
THREAD_NAMES = ("placet-handler", "placet-lookup")
THREAD_END_SECONDS = 0.2
SERVICE = "placet.v1.ConnectorService"
# An input, a cursor and what is said beside them.
RECEIVE_BYTES_MAX = 4 * 1024 * 1024
# Streams for what runs, for second starts, lookups and health.
STREAMS_BESIDE = 100
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
POLL_SECONDS = 0.05
CONCURRENCY_MAX = 64
DRAIN_SECONDS = 30.0

log = logging.getLogger("placet.connector")


class ServeError(Exception):
    """It cannot serve as it was told to. The text says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`tls` None is plaintext; its `ca` is whose certificates may dial. Port 0: any free one. No `tenants`: for all."""

    host: str
    port: int
    tokens: TokenCheck
    tls: Tls | None = None
    tenants: frozenset[str] = frozenset()
    concurrency_max: int = CONCURRENCY_MAX
    drain_seconds: float = DRAIN_SECONDS
    stop_seconds: float = 5.0


class Connector:
    """Serves one app. Made by `serving`."""

    def __init__(self, app: App, settings: Settings) -> None:
        """Binds. Raises ServeError."""
        if not app.tools:
            raise ServeError(f"app {app.name!r} has no tools")
        self.app = app
        self.boot_id = str(uuid.uuid4())
        self.table = AttemptTable()
        self._settings = settings
        self._supervisor = Supervisor()
        # Apart, so that lookups that hang keep no handler waiting: of these each has a thread as soon as it begins.
        self._handler_threads = ThreadPoolExecutor(
            settings.concurrency_max * (1 + WAITING_SHARE), thread_name_prefix=THREAD_NAMES[0]
        )
        self._lookup_threads = ThreadPoolExecutor(LOOKUP_THREADS_MAX, thread_name_prefix=THREAD_NAMES[1])
        self._service = Service(
            app,
            boot_id=self.boot_id,
            concurrency_max=settings.concurrency_max,
            tokens=settings.tokens,
            tenants=settings.tenants,
            table=self.table,
            handler_threads=self._handler_threads,
            lookup_threads=self._lookup_threads,
            supervisor=self._supervisor,
        )
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=_options(settings))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        # The stubs know no handler that writes to its stream, as Invoke does.
        add_ConnectorServiceServicer_to_server(self._service, self._server)  # type: ignore[arg-type]
        self.port = self._bound()

    @property
    def target(self) -> str:
        return _address(self._settings.host, self.port)

    async def start(self) -> None:
        await self._settings.tokens.prepare()
        await self._server.start()
        await self._set_serving(True)

    async def drain(self, hurry: asyncio.Event | None = None) -> None:
        """Takes nothing new, and returns when nothing runs, or its time is over and what runs was asked to stop."""
        self._service.is_draining = True
        await self._set_serving(False)
        if not await self._idle(self._settings.drain_seconds, hurry):
            for attempt in self.table.running:
                attempt.stop()
            await self._idle(self._settings.stop_seconds, None)

    async def stop(self) -> bool:
        """Streams get a moment to be settled. False: a handler that did not stop when asked is left behind."""
        await self._server.stop(self._settings.stop_seconds)
        is_alone = not self.table.running
        all_ended = await self._supervisor.abandon(self._settings.stop_seconds)
        for threads in (self._handler_threads, self._lookup_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        return all_ended and is_alone

    async def _idle(self, seconds: float, hurry: asyncio.Event | None) -> bool:
        end = asyncio.get_running_loop().time() + seconds
        while self.table.running:
            if asyncio.get_running_loop().time() >= end or (hurry is not None and hurry.is_set()):
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _set_serving(self, serving: bool) -> None:
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", SERVICE):
            await self._health.set(name, status)

    def _bound(self) -> int:
        address = _address(self._settings.host, self._settings.port)
        try:
            if self._settings.tls is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, _credentials(self._settings.tls))
        except RuntimeError:
            raise ServeError(
                f"cannot listen on {address}: it is taken, or not an address of this machine"
            ) from None


@contextlib.asynccontextmanager
async def serving(app: App, settings: Settings) -> AsyncIterator[Connector]:
    """A connector in this loop; it is drained at the end. Raises ServeError."""
    connector = Connector(app, settings)
    await connector.start()
    try:
        yield connector
    finally:
        await connector.drain()
        await connector.stop()


def run(app: App, settings: Settings, on_ready: Callable[[Connector], None] | None = None) -> None:
    """Until SIGTERM or SIGINT, which drain; a second one hurries. Raises ServeError.

    If a handler or a lookup will not end, the process ends here.
    """
    asyncio.run(_serve(app, settings, on_ready))
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAMES)]
    for thread in threads:
        thread.join(THREAD_END_SECONDS)
    if any(thread.is_alive() for thread in threads):
        _leave()


async def _serve(app: App, settings: Settings, on_ready: Callable[[Connector], None] | None) -> None:
    loop, asked, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def ask() -> None:
        if asked.is_set():
            hurry.set()
        asked.set()

    connector = Connector(app, settings)
    await connector.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    if on_ready is not None:
        on_ready(connector)
    await asked.wait()
    log.info("draining")
    await connector.drain(hurry)
    if not await connector.stop():
        _leave()


def _leave() -> None:
    log.warning("what would not stop is left behind")
    logging.shutdown()
    os._exit(0)


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
        ("grpc.max_send_message_length", RECEIVE_BYTES_MAX),
        ("grpc.max_concurrent_streams", settings.concurrency_max * (1 + WAITING_SHARE) + STREAMS_BESIDE),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        # What grpc 1.85 goes by: it arms no keepalive timeout below this one, which is a minute unless said.
        ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # Pings of Placet at its own pace are no abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIMEOUT_MS),
    ]


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    """Raises ServeError."""
    try:
        key, certificate, authorities = pem(tls.key), pem(tls.certificate), pem(tls.ca)
    except OSError as error:
        raise ServeError(f"{error.filename}: {error.strerror}") from None
    if key is None or certificate is None:
        raise ServeError("TLS needs the connector's own certificate and its key")
    return grpc.ssl_server_credentials(
        [(key, certificate)], authorities, require_client_auth=authorities is not None
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
