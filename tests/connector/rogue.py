"""A connector that does what a test tells it to, on the bare protocol, and a way to it that loses what it carries."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc

import placet
from placet import App
from placet.v1 import capability_pb2
from placet.v1 import connector_service_pb2 as pb
from placet.v1.connector_service_pb2_grpc import (
    ConnectorServiceServicer,
    add_ConnectorServiceServicer_to_server,
)
from placet_server.connector.settings import ConnectorSettings
from placet_server.core.kernel import Kernel
from placet_server.model.caller import Caller
from placet_server.model.ending_errors import EffectAmbiguous
from placet_server.model.errors import PlacetError
from placet_server.model.outcome import EffectState
from placet_server.rpc.convert.capability import manifest_of
from tests.core.kernels import ALICE, run

CLASSES = ("read", "idempotent", "reconcilable", "unsafe")

# For tests in which nothing is waited for in vain; and for those in which something is.
PATIENT = ConnectorSettings(describe_seconds=0.3, accept_seconds=20.0, grace_seconds=20.0)
HASTY = replace(
    PATIENT,
    keepalive_seconds=0.2,
    keepalive_timeout_seconds=0.2,
    accept_seconds=0.5,
    grace_seconds=0.2,
)
SHORT_GRACE = replace(PATIENT, grace_seconds=0.2)
OPTIONS = [
    ("grpc.http2.min_ping_interval_without_data_ms", 10),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
]


class Talk:
    """The connector's end of one conversation."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.start: pb.InvokeStart = pb.InvokeStart()
        self.heard: Any = None

    async def accept(self) -> pb.InvokeStart:
        """Up to where the author's code would be entered."""
        await self.hear_start()
        await self.say(accepted=pb.InvokeAccepted())
        assert "proceed" == await self.hear()
        return self.start

    async def hear_start(self) -> pb.InvokeStart:
        if not self.start.action_id:
            frame = await self._context.read()
            if frame is grpc.aio.EOF:
                raise asyncio.CancelledError
            self.start = frame.start
        return self.start

    async def hear(self) -> str:
        """Which frame comes next; "end" if none does."""
        self.heard = frame = await self._context.read()
        return "end" if frame is grpc.aio.EOF else str(frame.WhichOneof("frame"))

    async def say(self, **frame: Any) -> None:
        await self.send(pb.InvokeResponse(**frame))

    async def send(self, frame: pb.InvokeResponse) -> None:
        await self._context.write(frame)

    async def result(self, output: str = '{"done":true}') -> None:
        await self.say(result=pb.InvokeResult(output_json=output))

    async def refuse(self, code: grpc.StatusCode) -> None:
        await self._context.abort(code, "a secret of the connector")


Script = Callable[[Talk], Awaitable[None]]


def far_app() -> App:
    """`far.<class>`, and `far.unsafe_marked`. Their handlers are never called: the script stands for them."""
    app = App("far")
    for effect in CLASSES:
        _add(app, f"far.{effect}", effect)
    _add(app, "far.unsafe_marked", "unsafe", effect_marked=True)
    return app


def _add(app: App, name: str, effect: Any, **options: Any) -> None:
    @app.tool(name, effect, streaming=True, **options)
    async def handler(context: placet.Context, order: str = "1") -> Any:
        raise AssertionError

    if effect == "reconcilable":

        @app.lookup(name)
        async def find(order: str = "1") -> placet.NotKnown:
            raise AssertionError


class Rogue(ConnectorServiceServicer):
    """`script` is what becomes of each conversation; `effects` is for it to count."""

    def __init__(self, app: App | None = None) -> None:
        self.app = app or far_app()
        self.boot_id = str(uuid.uuid4())
        self.concurrency_max = 100
        self.is_draining = False
        self.is_silent = False
        self.script: Script = finish
        self.effects = 0
        self.looked_up: pb.LookupRequest | None = None
        self.finding = pb.LookupResponse(not_known=pb.NotKnown())
        self.port = 0
        self.credentials: grpc.ServerCredentials | None = None
        self._server: grpc.aio.Server | None = None

    async def Describe(self, request: Any, context: Any) -> pb.DescribeResponse:
        if self.is_silent:
            await context.abort(grpc.StatusCode.UNAVAILABLE)
        return pb.DescribeResponse(
            manifest=self.app.manifest(),
            boot_id=self.boot_id,
            concurrency_max=self.concurrency_max,
            draining=self.is_draining,
            lookups=[f"{tool.name}@{tool.version}" for tool in self.app.tools if tool.lookup is not None],
        )

    async def Invoke(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        await self.script(Talk(context))

    async def Lookup(self, request: pb.LookupRequest, context: Any) -> pb.LookupResponse:
        self.looked_up = request
        return self.finding

    async def start(self) -> None:
        """Again at the same port, if it was started before."""
        self._server = grpc.aio.server(options=OPTIONS)
        add_ConnectorServiceServicer_to_server(self, self._server)
        address = f"127.0.0.1:{self.port}"
        if self.credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self.credentials)
        await self._server.start()

    async def die(self) -> None:
        """Whatever it talks to hears of it as of a process that is gone."""
        if self._server is not None:
            await self._server.stop(None)

    def manifest(self, port: int = 0, name: str = "far") -> capability_pb2.Manifest:
        message = self.app.manifest()
        message.name = name
        message.connector.target = f"127.0.0.1:{port or self.port}"
        message.connector.plaintext = True
        message.ClearField("local")
        return message


async def finish(talk: Talk) -> None:
    await talk.accept()
    await talk.result()
    await talk.hear()


FAR = (*(f"far.{effect}" for effect in CLASSES), "far.unsafe_marked")

# What a loss means, by effect class: before the connector was told to begin, and after. IDEMPOTENT is tried again.
NOT_BEGUN = dict.fromkeys(FAR, "FAILED CONNECTOR_UNAVAILABLE")
BEGUN = {
    "far.read": "FAILED CONNECTOR_UNAVAILABLE",
    "far.idempotent": "SUCCEEDED in attempt 2",
    "far.reconcilable": "AMBIGUOUS CONNECTOR_UNAVAILABLE",
    "far.unsafe": "AMBIGUOUS CONNECTOR_UNAVAILABLE",
    "far.unsafe_marked": "FAILED CONNECTOR_UNAVAILABLE",
}


def first_only(script: Script) -> Script:
    """Further attempts go well."""

    async def scripted(talk: Talk) -> None:
        start = await talk.hear_start()
        await (script if start.attempt == 1 else finish)(talk)

    return scripted


async def ends(kernel: Kernel, names: Sequence[str] = FAR, **options: Any) -> dict[str, str]:
    """How each is told to its caller, all called at once."""
    told = await asyncio.gather(*(_end(kernel, name, options) for name in names))
    return dict(zip(names, told, strict=True))


async def _end(kernel: Kernel, name: str, options: dict[str, Any]) -> str:
    try:
        done = await run(kernel, name, {}, f"key of {name}", **options)
    except PlacetError as error:
        outcome = error.outcome
        assert outcome is not None
        expected = EffectState.UNKNOWN if outcome.kind == "AMBIGUOUS" else EffectState.NOT_DONE
        assert outcome.effect == (None if name == "far.read" else expected)
        cause = error.cause if isinstance(error, EffectAmbiguous) else error.reason
        return f"{outcome.kind} {cause}"
    return f"SUCCEEDED in attempt {done.action.attempt}"


@asynccontextmanager
async def rogue_of(kernel: Kernel, app: App | None = None, caller: Caller = ALICE) -> AsyncIterator[Rogue]:
    """Admitted, and at work."""
    rogue = Rogue(app)
    await rogue.start()
    try:
        await admit(kernel, rogue.manifest(), caller)
        yield rogue
    finally:
        await rogue.die()


async def admit(kernel: Kernel, manifest: capability_pb2.Manifest, caller: Caller = ALICE) -> list[str]:
    """The codes of what was found."""
    result = await kernel.catalog.admit(caller, manifest_of(manifest))
    return [problem.code for problem in result.problems]


class Way:
    """Carries bytes to a port and back. What is open when it is told to lose them loses them from then on, while both
    ends think that the other is there; what is opened later does not.
    """

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._losing: dict[str, list[list[bool]]] = {"there": [], "back": []}

    async def __aenter__(self) -> Way:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def lose(self, *directions: str) -> None:
        for direction in directions or ("there", "back"):
            for flag in self._losing[direction]:
                flag[0] = True

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        losing: dict[str, list[bool]] = {direction: [False] for direction in self._losing}
        for direction, flag in losing.items():
            self._losing[direction].append(flag)
        there, out = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._writers += (out, writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, out, losing["there"]))
                group.create_task(_pump(there, writer, losing["back"]))
        except* OSError:
            pass
        finally:
            out.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: list[bool]) -> None:
    while data := await reader.read(65536):
        if not loses[0]:
            writer.write(data)
            await writer.drain()
    if not loses[0]:
        writer.close()
