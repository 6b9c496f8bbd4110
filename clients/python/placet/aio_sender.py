"""How the asyncio client sends: the steps of `placet.steps`, pages, and streams."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from placet.connection import AsyncToken
from placet.errors import PlacetError
from placet.feed import FeedFollower
from placet.follow import Follower
from placet.resume import ResumeFollower
from placet.retry import Deadline, RetryPolicy
from placet.status import error_of_rpc
from placet.steps import Pause, ResultT, Send, Steps, ask
from placet.v1 import event_pb2
from placet.v1.approval_service_pb2_grpc import ApprovalServiceStub
from placet.v1.catalog_service_pb2_grpc import CatalogServiceStub
from placet.v1.operations_service_pb2_grpc import OperationsServiceStub
from placet.v1.policy_service_pb2_grpc import PolicyServiceStub
from placet.v1.recovery_service_pb2_grpc import RecoveryServiceStub
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet.v1.session_service_pb2_grpc import SessionServiceStub


class AsyncSender:
    """Sends steps to a server, and pauses where they say so."""

    def __init__(
        self, channel: grpc.aio.Channel, token: AsyncToken = "", policy: RetryPolicy | None = None
    ) -> None:
        self._channel = channel
        self._token = token
        self._policy = policy or RetryPolicy()
        self._keyless: set[str] = set()
        self._stubs = (
            RuntimeServiceStub(channel),
            ApprovalServiceStub(channel),
            CatalogServiceStub(channel),
            OperationsServiceStub(channel),
            PolicyServiceStub(channel),
            RecoveryServiceStub(channel),
            SessionServiceStub(channel),
        )

    async def _ask(self, method: str, request: Any, timeout: float) -> Any:
        return await self._run(ask(method, request, Deadline(timeout), self._policy))

    async def _pages(self, method: str, request: Any, member: str, timeout: float) -> AsyncIterator[Any]:
        while True:
            response = await self._ask(method, request, timeout)
            for found in getattr(response, member):
                yield found
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def _run(self, steps: Steps[ResultT]) -> ResultT:
        reply: Any = None
        failure: PlacetError | None = None
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: ResultT = end.value
                return result
            reply, failure = None, None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                continue
            try:
                reply = await self._send(step)
            except PlacetError as error:
                failure = error

    async def _send(self, step: Send) -> Any:
        metadata = (*(await self._metadata()), *step.metadata)
        try:
            return await self._method(step.method)(step.request, timeout=step.seconds, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error) from None

    async def _events(
        self, follower: Follower | FeedFollower | ResumeFollower
    ) -> AsyncIterator[event_pb2.ActionEvent]:
        async with aclosing(self._received(follower)) as received:
            async for event, _ in received:
                yield event

    async def _responses(self, follower: FeedFollower) -> AsyncIterator[Any]:
        """What came with each event, that is: the whole message."""
        async with aclosing(self._received(follower)) as received:
            async for _, response in received:
                yield response

    async def _received(
        self, follower: Follower | FeedFollower | ResumeFollower
    ) -> AsyncGenerator[tuple[event_pb2.ActionEvent, Any], None]:
        done = False
        while not done:
            step = follower.opening()
            receiving = self._method(step.method)(
                step.request, timeout=step.seconds, metadata=(*(await self._metadata()), *step.metadata)
            )
            error = None
            try:
                async for response in receiving:
                    event = follower.take(response.event)
                    if event is not None:
                        yield event, response
                    if follower.enough:
                        break
            except grpc.aio.AioRpcError as failure:
                error = error_of_rpc(failure)
            finally:
                receiving.cancel()
            done = await self._run(follower.ended(error))

    def _method(self, name: str) -> Any:
        return next(getattr(stub, name) for stub in self._stubs if hasattr(stub, name))

    async def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._token if isinstance(self._token, str) else self._token()
        if inspect.isawaitable(token):
            token = await token
        return (("authorization", f"Bearer {token}"),) if token else ()
