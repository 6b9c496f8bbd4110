"""A real server in this process, with the real layers, over handlers that a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from placet.v1 import outcome_pb2
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet_server.model.caller import Caller
from placet_server.rpc.announcement import Announcer
from placet_server.rpc.call import Method, Rpc
from placet_server.rpc.identity.layer import Identity
from placet_server.rpc.identity.source import Known, TokenSource
from placet_server.rpc.interceptor import Interceptor, Parts
from placet_server.rpc.limit import Limiter
from placet_server.rpc.method import (
    APPROVAL,
    CATALOG,
    OPERATIONS,
    POLICY,
    RECOVERY,
    RUNTIME,
    SESSION,
    methods,
)
from placet_server.rpc.observation import Observation
from placet_server.rpc.server import RpcServer
from placet_server.rpc.tracing import Tracing
from placet_server.rpc.transport import Transport
from placet_server.rpc.validation import Validation
from placet_server.telemetry.metric import Metrics

if TYPE_CHECKING:
    from placet.v1.runtime_service_pb2_grpc import RuntimeServiceAsyncStub

TOKEN = "good"
ALICE = Caller(tenant="acme", subject="alice", scopes=frozenset({"*"}))
ACTION_ID = "0199b0c0-0000-7000-8000-000000000001"

Behaviour = Callable[[Rpc[Any]], Awaitable[Any]]


class OneToken:
    """Knows one token."""

    def __init__(self, token: str = TOKEN, caller: Caller = ALICE) -> None:
        self._token = token
        self._caller = caller

    async def establish(self, token: str) -> Known | None:
        return Known(caller=self._caller, expire_time=None) if token == self._token else None


class Chosen:
    """Answers every RPC of all services by one behaviour; the default answer is an empty response."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour

    def __getattr__(self, name: str) -> Any:
        method = next(m for s in SERVICES for m in s.methods if _snake(m.name) == name)
        response_type = GetMessageClass(method.output_type)

        async def answer(rpc: Rpc[Any]) -> Any:
            given = None if self.behaviour is None else await self.behaviour(rpc)
            return given if isinstance(given, Message) else response_type()

        async def stream(rpc: Rpc[Any]) -> AsyncIterator[Any]:
            yield await answer(rpc)

        return stream if method.server_streaming else answer


SERVICES = (RUNTIME, APPROVAL, CATALOG, POLICY, SESSION, OPERATIONS, RECOVERY)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def chosen_methods(servicer: object) -> list[Method]:
    return [method for service in SERVICES for method in methods(service, servicer)]


ALL_PATHS = [f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods]


@dataclass(kw_only=True)
class Setup:
    """What a test may replace."""

    behaviour: Behaviour | None = None
    tokens: list[TokenSource] = field(default_factory=lambda: [OneToken()])
    identity: Identity | None = None
    limiter: Limiter = field(
        default_factory=lambda: Limiter(calls_max=100, watches_max=100, tenant_share=1.0)
    )
    metrics: Metrics = field(default_factory=Metrics)
    tracing: Tracing | None = None
    announcer: Announcer | None = None
    reader_stall_seconds: float = 60.0
    servicer: object | None = None
    transport: dict[str, Any] = field(default_factory=dict)
    channel_credentials: grpc.ChannelCredentials | None = None
    channel_options: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(kw_only=True)
class Running:
    channel: grpc.aio.Channel
    server: RpcServer
    target: str

    @property
    def runtime(self) -> RuntimeServiceAsyncStub:
        return RuntimeServiceStub(self.channel)


TRANSPORT: dict[str, Any] = {
    "address": "127.0.0.1:0",
    "reuse_port": False,
    "receive_bytes_max": 20 * 2**20,
    "metadata_bytes_max": 16 * 1024,
    "streams_per_connection_max": 1024,
    "keepalive_seconds": 30.0,
    "keepalive_timeout_seconds": 10.0,
    "connection_age_seconds": 1800.0,
    "connection_age_grace_seconds": 900.0,
    "credentials": None,
    "reflection": False,
}


@asynccontextmanager
async def serving(setup: Setup | None = None) -> AsyncIterator[Running]:
    setup = setup or Setup()
    parts = Parts(
        telemetry=Observation(setup.metrics, setup.tracing).layer,
        limiter=setup.limiter,
        identity=setup.identity or Identity(setup.tokens),
        validation=Validation(),
        reader_stall_seconds=setup.reader_stall_seconds,
    )
    servicer = setup.servicer or Chosen(setup.behaviour)
    interceptor = Interceptor(chosen_methods(servicer), parts)
    services = [service.full_name for service in SERVICES]
    server = RpcServer(Transport(**(TRANSPORT | setup.transport)), interceptor, services)
    await server.start()
    background = [asyncio.ensure_future(server.run())]
    if setup.announcer is not None:
        background.append(asyncio.ensure_future(setup.announcer.run()))
    # Not by a name: that may have a second address, where somebody else has the same port.
    target = f"127.0.0.1:{server.port}"
    try:
        async with _channel(target, setup) as channel:
            yield Running(channel=channel, server=server, target=target)
    finally:
        await server.stop(None)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)


def _channel(target: str, setup: Setup) -> grpc.aio.Channel:
    if setup.channel_credentials is not None:
        options = [("grpc.ssl_target_name_override", "localhost"), *setup.channel_options]
        return grpc.aio.secure_channel(target, setup.channel_credentials, options=options)
    return grpc.aio.insecure_channel(target, options=setup.channel_options)


def bearer(token: str = TOKEN) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def send_bytes(
    channel: grpc.aio.Channel,
    path: str,
    raw: bytes = b"",
    *,
    metadata: Any = None,
    seconds: float | None = 10,
) -> list[bytes]:
    """One request in raw bytes to a method of any response shape; the responses in raw bytes. Raises AioRpcError."""
    method: Any = channel.unary_stream(path)
    call = method(raw, metadata=bearer() if metadata is None else metadata, timeout=seconds)
    return [response async for response in call]


async def refusal(awaitable: Awaitable[Any]) -> Refusal:
    """What the call was refused with. Fails if it was not."""
    try:
        await awaitable
    except grpc.aio.AioRpcError as error:
        return Refusal(error)
    raise AssertionError("the call was answered OK")


class Refusal:
    """A non-OK status, read as a client reads it."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        self.message = error.details() or ""
        self.trailers: dict[str, Any] = dict(error.trailing_metadata() or ())
        self.status = status_pb2.Status.FromString(self.trailers.get("grpc-status-details-bin", b""))
        self.infos = [
            _unpacked(d, error_details_pb2.ErrorInfo) for d in self.status.details if _is(d, "ErrorInfo")
        ]
        self.outcomes = [_unpacked(d, outcome_pb2.Outcome) for d in self.status.details if _is(d, "Outcome")]
        self.bad_requests = [
            _unpacked(d, error_details_pb2.BadRequest) for d in self.status.details if _is(d, "BadRequest")
        ]

    @property
    def reason(self) -> str:
        """Of the one ErrorInfo, which is ours."""
        assert ["placet.dev"] == [info.domain for info in self.infos]
        return str(self.infos[0].reason)


def _is(detail: Any, name: str) -> bool:
    return str(detail.type_url).rsplit(".", 1)[1] == name


def _unpacked(detail: Any, kind: Any) -> Any:
    return kind.FromString(detail.value)
