"""A caller that takes what comes: no look-up and hardly a retry, so that every answer is seen as it is."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from placet import requests
from placet.errors import NotFoundError, PlacetError
from placet.requests import CallArguments, CallOptions, Place
from placet.status import error_of_rpc
from placet.v1 import (
    action_pb2,
    error_reason_pb2,
    outcome_pb2,
    recovery_service_pb2,
    runtime_service_pb2,
)
from placet.v1.recovery_service_pb2_grpc import RecoveryServiceStub
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet_server.store import event as events
from placet_server.store.connection import Connection, connect
from tests.faults.processes import POLL_SECONDS, WAIT_SECONDS, Server

TENANT = "dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one Execute: an action, or an error."""

    action: action_pb2.Action | None = None
    attached: bool = False
    error: PlacetError | None = None
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """SUCCEEDED, the reason of the refusal or ending, or the transport's code in lower case."""
        if self.error is None:
            return "SUCCEEDED"
        return self.error.reason or self.error.code.lower()

    @property
    def output(self) -> str:
        assert self.action is not None, repr(self.error)
        return self.action.output_json


class Caller:
    """Of one server. Close it; it does not survive the server's port."""

    def __init__(self, server: Server) -> None:
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._channel = grpc.aio.insecure_channel(server.target, options)
        self._stub = RuntimeServiceStub(self._channel)
        self._recovery: Any = RecoveryServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {server.token}"),)

    async def close(self) -> None:
        await self._channel.close()

    async def execute(
        self,
        capability: str,
        input: Any,
        key: str,
        *,
        seconds: float = 30.0,
        patient: bool = True,
        on_action_id: Callable[[str], None] | None = None,
        **options: Any,
    ) -> Answer:
        """`patient`: sends again what a busy machine's store was too slow for, as every caller may."""
        arguments: CallArguments = {"key": key, **options}  # type: ignore[typeddict-item]
        request = requests.prepare_call(capability, input, CallOptions(**arguments)).execute_request()
        begin = time.monotonic()
        while True:
            answer = await self._send(request, seconds, begin, on_action_id)
            if not patient or answer.word != "STORE_UNAVAILABLE" or time.monotonic() - begin > seconds:
                return answer
            await asyncio.sleep(POLL_SECONDS)

    async def submit(
        self,
        capability: str,
        input: Any,
        key: str,
        *,
        queue: str = "",
        delay: float | None = None,
        seconds: float = 10.0,
    ) -> Answer:
        """Stored, or why not."""
        prepared = requests.prepare_call(capability, input, CallOptions(key=key))
        try:
            response = await self._ask(
                self._stub.Submit, prepared.submit_request(Place(queue=queue, delay=delay)), seconds
            )
        except PlacetError as error:
            return Answer(error=error)
        return Answer(action=response.action, attached=response.attached)

    async def cancel(self, action_id: str) -> action_pb2.Action:
        request = runtime_service_pb2.CancelActionRequest(action_id=action_id, reason="a test")
        action: action_pb2.Action = (await self._ask(self._stub.CancelAction, request)).action
        return action

    async def redrive(self, action_id: str) -> str:
        """Empty if it is tried again, or the rule that forbids it."""
        request = recovery_service_pb2.RedriveRequest(
            selection=recovery_service_pb2.EndedSelection(action_ids=[action_id], count_max=1),
            idempotency_key=uuid.uuid4().hex,
        )
        (result,) = (await self._ask(self._recovery.Redrive, request)).results
        rule: str = result.refused_rule
        assert bool(rule) != result.changed
        return rule

    async def reconcile(self, action_id: str) -> str:
        """Empty if somebody will be asked about it, or the rule that forbids it."""
        request = recovery_service_pb2.ReconcileRequest(action_ids=[action_id])
        (result,) = (await self._ask(self._recovery.Reconcile, request)).results
        rule: str = result.refused_rule
        assert bool(rule) != result.changed
        return rule

    async def _ask(self, method: Any, request: Any, seconds: float = 10.0) -> Any:
        """Sends again what a busy machine's store was too slow for. Raises PlacetError."""
        begin = time.monotonic()
        while True:
            try:
                return await method(request, timeout=seconds, metadata=self._metadata)
            except grpc.aio.AioRpcError as failed:
                error = error_of_rpc(failed)
            if error.reason != "STORE_UNAVAILABLE" or time.monotonic() - begin > seconds:
                raise error from None
            await asyncio.sleep(POLL_SECONDS)

    async def _send(
        self, request: Any, seconds: float, begin: float, on_action_id: Callable[[str], None] | None
    ) -> Answer:
        try:
            if on_action_id is None:
                response = await self._stub.Execute(request, timeout=seconds, metadata=self._metadata)
            else:
                response = await self._execute_announced(request, seconds, on_action_id)
        except grpc.aio.AioRpcError as error:
            return Answer(error=error_of_rpc(error), seconds=time.monotonic() - begin)
        return Answer(action=response.action, attached=response.attached, seconds=time.monotonic() - begin)

    async def _execute_announced(
        self, request: Any, seconds: float, on_action_id: Callable[[str], None]
    ) -> runtime_service_pb2.ExecuteResponse:
        """As a stream of one answer, which is the same on the wire: only so does this client see initial metadata when
        they come."""
        execute = self._channel.unary_stream(
            "/placet.v1.RuntimeService/Execute",
            request_serializer=runtime_service_pb2.ExecuteRequest.SerializeToString,
            response_deserializer=runtime_service_pb2.ExecuteResponse.FromString,
        )
        call = execute(request, timeout=seconds, metadata=self._metadata)
        on_action_id(str(dict(await call.initial_metadata()).get("placet-action-id", "")))
        responses: list[runtime_service_pb2.ExecuteResponse] = [each async for each in call]
        return responses[0]

    async def get(self, action_id: str) -> action_pb2.Action:
        return await self._get(requests.get_request(action_id))

    async def by_key(self, capability: str, key: str) -> action_pb2.Action | None:
        """None: no action holds it."""
        try:
            return await self._get(requests.get_by_key_request(capability, key))
        except NotFoundError:
            return None

    async def info(self) -> runtime_service_pb2.GetServerInfoResponse:
        request = runtime_service_pb2.GetServerInfoRequest()
        return await self._stub.GetServerInfo(request, timeout=5, metadata=self._metadata)

    async def until(self, capability: str, key: str, *states: str) -> action_pb2.Action:
        """The action once it is in one of these states."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            action = await self.by_key(capability, key)
            if action is not None and state_of(action) in states:
                return action
            assert time.monotonic() < deadline, f"never {states}: {action}"
            await asyncio.sleep(POLL_SECONDS)

    async def _get(self, request: Any) -> action_pb2.Action:
        try:
            response = await self._stub.GetAction(request, timeout=5, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error) from None
        action: action_pb2.Action = response.action
        return action


def state_of(action: action_pb2.Action) -> str:
    return action_pb2.ActionState.Name(action.state).removeprefix("ACTION_STATE_")


def effect_of(action: action_pb2.Action) -> str:
    """ "-" where the capability has none."""
    if not action.outcome.effect:
        return "-"
    return outcome_pb2.EffectState.Name(action.outcome.effect).removeprefix("EFFECT_STATE_")


def advice_of(action: action_pb2.Action) -> str:
    return outcome_pb2.RetryAdvice.Name(action.outcome.retry_advice).removeprefix("RETRY_ADVICE_")


def reason_of(action: action_pb2.Action) -> str:
    return error_reason_pb2.ErrorReason.Name(action.outcome.reason).removeprefix("ERROR_REASON_")


async def check_chain(dsn: str, action: action_pb2.Action) -> list[str]:
    """The types of an action's events, whose sequence must be gap-free and whose receipts must verify."""
    connection = await connect(dsn)
    try:
        chain = await events.list_receipts(connection, TENANT, action.action_id)
    finally:
        await connection.close()
    receipt = b""
    for link in chain:
        told = (action.action_id, link.sequence, link.type, link.create_time_us, link.body)
        receipt = hashlib.sha256(receipt + "\n".join(map(str, told)).encode()).digest()
        assert receipt.hex() == link.receipt
    assert list(range(1, len(chain) + 1)) == [link.sequence for link in chain]
    assert action.receipt_digest == receipt.hex()
    return [link.type for link in chain]


async def until_all_ended(dsn: str) -> list[tuple[str, int, int]]:
    """The states, attempts and numbers of all actions once nothing moves any more."""
    connection = await connect(dsn)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while await connection.fetchval("select count(*) from actions where state in ('QUEUED', 'RUNNING')"):
            assert time.monotonic() < deadline, f"never ended: {await _counted(connection)}"
            await asyncio.sleep(POLL_SECONDS)
        return await _counted(connection)
    finally:
        await connection.close()


async def _counted(connection: Connection) -> list[tuple[str, int, int]]:
    rows = await connection.fetch("select state, attempt, count(*) from actions group by 1, 2 order by 1, 2")
    return [(str(row[0]), int(row[1]), int(row[2])) for row in rows]
