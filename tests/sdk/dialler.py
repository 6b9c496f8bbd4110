"""Placet's side of a connector, by hand: every frame is a test's own, right or wrong."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf import duration_pb2

from placet import App
from placet.connector.server import Connector, Settings, serving
from placet.connector.token import TokenCheck, Unchecked
from placet.v1 import action_pb2
from placet.v1 import connector_service_pb2 as pb
from placet.v1.connector_service_pb2_grpc import ConnectorServiceStub

if TYPE_CHECKING:
    from placet.v1.connector_service_pb2_grpc import ConnectorServiceAsyncStub

ANSWER_SECONDS = 20.0
DIGEST = "0" * 64


class Signer:
    """Placet's signing key."""

    def __init__(self, key_id: str = "k1") -> None:
        self._key = Ed25519PrivateKey.generate()
        self.key_id = key_id

    def jwks(self) -> bytes:
        public = jwt.algorithms.OKPAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**public, "kid": self.key_id, "alg": "EdDSA", "use": "sig"}]}).encode()

    def token(self, said: Any, use: str | None = "invoke", **changes: Any) -> str:
        """Of a start or a lookup; a claim changed to None is left out."""
        now = int(time.time())
        claims = {
            "iss": "placet",
            "aud": "placet-connector:desk",
            "use": use,
            "sub": said.action_id,
            "tenant": said.caller.tenant,
            "attempt": said.attempt,
            "capability": said.capability,
            "version": said.version,
            "input_sha256": hashlib.sha256(said.input_json.encode()).hexdigest(),
            "iat": now,
            "exp": now + 120,
        } | changes
        sent = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(sent, self._key, algorithm="EdDSA", headers={"kid": self.key_id})


class Stream:
    """One Invoke."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, **frame: Any) -> None:
        await self.call.write(pb.InvokeRequest(**frame))

    async def next(self) -> tuple[str, Any]:
        """The next frame and its name; ("end", status code) after the last."""
        async with asyncio.timeout(ANSWER_SECONDS):
            try:
                frame = await self.call.read()
            except grpc.aio.AioRpcError as error:
                return "end", error.code()
            if frame is grpc.aio.EOF:
                return "end", await self.call.code()
        name = frame.WhichOneof("frame")
        return name, getattr(frame, name)

    async def names(self) -> list[Any]:
        """Of the frames up to the end, and the status."""
        found: list[Any] = []
        while not found or not isinstance(found[-1], grpc.StatusCode):
            name, frame = await self.next()
            found.append(frame if name == "end" else name)
        return found

    async def proceed(self) -> None:
        assert ("accepted", pb.InvokeAccepted()) == await self.next()
        await self.send(proceed=pb.InvokeProceed())

    async def settled(self) -> Any:
        """The answer, acknowledged; then the stream has ended well."""
        name, answer = await self.next()
        assert name in ("result", "failure"), name
        await self.send(settle_ack=pb.SettleAck())
        assert ("end", grpc.StatusCode.OK) == await self.next()
        return answer

    def lose(self) -> None:
        self.call.cancel()


class Dialler:
    """Knows one connector."""

    def __init__(self, connector: Connector, stub: ConnectorServiceAsyncStub) -> None:
        self.connector = connector
        self.stub = stub

    def start(
        self, capability: str, value: Any = None, *, seconds: float = 30.0, **said: Any
    ) -> pb.InvokeStart:
        whole = duration_pb2.Duration()
        whole.seconds, whole.nanos = int(seconds), int(seconds % 1 * 1e9)
        action_id = said.pop("action_id", None) or str(uuid.uuid4())
        fields: dict[str, Any] = {
            "attempt": 1,
            "version": "1",
            "contract_digest": DIGEST,
            "effect_key": f"placet-{action_id}",
            "caller": action_pb2.Caller(tenant="acme", subject="ada", kind=action_pb2.CALLER_KIND_USER),
            "boot_id": self.connector.boot_id,
        }
        return pb.InvokeStart(
            action_id=action_id,
            capability=capability,
            input_json=json.dumps({} if value is None else value),
            time_left=whole,
            **(fields | said),
        )

    async def invoke(self, start: pb.InvokeStart) -> Stream:
        stream = Stream(self.stub.Invoke())
        await stream.send(start=start)
        return stream

    async def begun(self, capability: str, value: Any = None, **said: Any) -> Stream:
        """Accepted, and told to proceed."""
        stream = await self.invoke(self.start(capability, value, **said))
        await stream.proceed()
        return stream

    async def refused(self, start: pb.InvokeStart) -> grpc.StatusCode:
        """Fails unless it ends before `accepted`."""
        name, code = await (await self.invoke(start)).next()
        assert "end" == name
        assert isinstance(code, grpc.StatusCode)
        return code

    async def look_up(self, start: pb.InvokeStart, **said: Any) -> pb.LookupResponse:
        fields: dict[str, Any] = {
            "action_id": start.action_id,
            "attempt": start.attempt,
            "capability": start.capability,
            "version": start.version,
            "input_json": start.input_json,
            "effect_key": start.effect_key,
            "caller": start.caller,
            "invocation_token": start.invocation_token,
        }
        return await self.stub.Lookup(pb.LookupRequest(**(fields | said)), timeout=ANSWER_SECONDS)


@asynccontextmanager
async def dialled(app: App, tokens: TokenCheck | None = None, **settings: Any) -> AsyncIterator[Dialler]:
    """A connector in this loop, and who dials it."""
    fields: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "tokens": tokens or Unchecked(),
        "drain_seconds": 0.0,
    }
    async with (
        serving(app, Settings(**(fields | settings))) as connector,
        grpc.aio.insecure_channel(connector.target) as channel,
    ):
        yield Dialler(connector, ConnectorServiceStub(channel))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(ANSWER_SECONDS):
        while not is_so():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
