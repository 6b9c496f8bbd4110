"""How the blocking client sends: the steps of `placet.steps`, pages, and streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import grpc

from placet.aside import Aside
from placet.connection import Token
from placet.errors import PlacetError
from placet.feed import FeedFollower
from placet.follow import Follower
from placet.resume import ResumeFollower
from placet.retry import Deadline, RetryPolicy
from placet.sending import Sending
from placet.steps import Pause, ResultT, Send, Steps, ask
from placet.v1 import event_pb2
from placet.v1.approval_service_pb2_grpc import ApprovalServiceStub
from placet.v1.catalog_service_pb2_grpc import CatalogServiceStub
from placet.v1.operations_service_pb2_grpc import OperationsServiceStub
from placet.v1.policy_service_pb2_grpc import PolicyServiceStub
from placet.v1.recovery_service_pb2_grpc import RecoveryServiceStub
from placet.v1.runtime_service_pb2_grpc import RuntimeServiceStub
from placet.v1.session_service_pb2_grpc import SessionServiceStub


class Sender:
    """Sends steps to a server, and pauses where they say so."""

    def __init__(self, channel: grpc.Channel, token: Token = "", policy: RetryPolicy | None = None) -> None:
        self._channel = channel
        self._token = token
        self._policy = policy or RetryPolicy()
        self._keyless: set[str] = set()
        self._is_closed = False
        self._aside = Aside()
        self._stubs = (
            RuntimeServiceStub(channel),
            ApprovalServiceStub(channel),
            CatalogServiceStub(channel),
            OperationsServiceStub(channel),
            PolicyServiceStub(channel),
            RecoveryServiceStub(channel),
            SessionServiceStub(channel),
        )

    def _ask(self, method: str, request: Any, timeout: float) -> Any:
        return self._run(ask(method, request, Deadline(timeout), self._policy))

    def _pages(self, method: str, request: Any, member: str, timeout: float) -> Iterator[Any]:
        while True:
            response = self._ask(method, request, timeout)
            yield from getattr(response, member)
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    def _run(self, steps: Steps[ResultT]) -> ResultT:
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
                time.sleep(step.seconds)
                continue
            try:
                reply = self._send(step)
            except PlacetError as error:
                if self._is_closed:
                    raise
                failure = error

    def _send(self, step: Send) -> Any:
        sending = Sending(self._aside, self._opened(step, self._method(step.method).future))
        try:
            return sending.reply()
        except PlacetError:
            raise
        except BaseException:
            # Ctrl-C: whoever no longer waits says so.
            sending.cancel()
            raise

    def _events(self, follower: Follower | FeedFollower | ResumeFollower) -> Iterator[event_pb2.ActionEvent]:
        with closing(self._received(follower)) as received:
            for event, _ in received:
                yield event

    def _responses(self, follower: FeedFollower) -> Iterator[Any]:
        """What came with each event, that is: the whole message."""
        with closing(self._received(follower)) as received:
            for _, response in received:
                yield response

    def _received(
        self, follower: Follower | FeedFollower | ResumeFollower
    ) -> Generator[tuple[event_pb2.ActionEvent, Any], None, None]:
        done = False
        while not done:
            step = follower.opening()
            receiving = Sending(self._aside, self._opened(step, self._method(step.method)))
            error = None
            try:
                while (response := receiving.next()) is not None:
                    event = follower.take(response.event)
                    if event is not None:
                        yield event, response
                    if follower.enough:
                        break
            except PlacetError as failure:
                error = failure
                if self._is_closed:
                    raise
            finally:
                receiving.cancel()
            done = self._run(follower.ended(error))

    def _opened(self, step: Send, method: Any) -> Callable[[], Any]:
        metadata = (*self._metadata(), *step.metadata)
        return lambda: method(step.request, timeout=step.seconds, metadata=metadata)

    def _method(self, name: str) -> Any:
        return next(getattr(stub, name) for stub in self._stubs if hasattr(stub, name))

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._token if isinstance(self._token, str) else self._token()
        return (("authorization", f"Bearer {token}"),) if token else ()
