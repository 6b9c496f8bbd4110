"""The blocking client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Unpack, cast

import grpc

from placet import batch, requests
from placet.approvals import ApprovalCalls
from placet.ask import AskCalls
from placet.batch import Answer, Submission
from placet.catalog import CatalogCalls
from placet.connection import Address, Tls, Token, find_address
from placet.feed import FeedFollower, FeedStream
from placet.follow import Follower
from placet.operations import OperationsCalls
from placet.policy_calls import PolicyCalls
from placet.recovery import RecoveryCalls
from placet.requests import (
    CallArguments,
    CallOptions,
    OnWait,
    Place,
    Seconds,
    SubmitArguments,
    Which,
)
from placet.result import CancelCount, Result, Submitted
from placet.resume import ResumeFollower, resume
from placet.retry import Deadline, RetryPolicy
from placet.sessions import SessionCalls
from placet.steps import call, cancel_all, submit, wait
from placet.stream import CALL_SECONDS, READ_SECONDS, EventStream
from placet.v1 import action_pb2, event_pb2, runtime_service_pb2


class Client(
    ApprovalCalls, AskCalls, CatalogCalls, OperationsCalls, PolicyCalls, RecoveryCalls, SessionCalls
):
    """Calls one server; may be used by many threads. Close it, or use it as a context manager.

    Every method has a deadline and sends its request again when that is safe and useful: see `placet.retry`.
    Exceptions are those of `placet.errors`. A connection does not survive a fork: connect in the child.
    """

    @classmethod
    def connect(
        cls,
        target: str | None = None,
        *,
        token: Token | None = None,
        tls: Tls | bool | None = None,
        policy: RetryPolicy | None = None,
    ) -> Client:
        """Without arguments as `placet dev`, $PLACET_TARGET and $PLACET_TOKEN say. Connects lazily. Raises
        TargetError.

        `token` is sent with every call; a function is asked each time. `tls`: see `placet.connection.find_address`.
        """
        address = find_address(target, token, tls)
        return cls(_open_channel(address), cast("Token", address.token), policy)

    def close(self) -> None:
        """Ends what is under way. May be called twice."""
        self._is_closed = True
        self._aside.do(self._channel.close)
        self._aside.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(
        self, capability: str, input: Any, *, timeout: float = CALL_SECONDS, **options: Unpack[CallArguments]
    ) -> Result:
        """Run a capability to its end; `timeout` seconds bound it with all its retries.

        `input` is JSON-able, a pydantic model, or JSON text as bytes. `key` binds retries to one effect: give your
        own wherever you may call again after a crash of your own; without one each call gets a fresh key, and ""
        sends none. When the reply is lost the same request is sent again with the same key, and at the end the key
        is looked up. A new key is never chosen for you.

        `on_wait` is for what people have to say yes to first: "fail", unless said, raises ApprovalRequired, and the
        same call with the same key tells later what became of it; "return" gives a Result whose action is WAITING;
        "hold" waits for them, too, within `timeout`.

        A `message_id` of your own, new for each message, keeps whoever records the request from using it again later.
        A second call with it is refused unless its `key` is the same, too.
        """
        prepared = requests.prepare_call(capability, input, CallOptions(**options))
        return self._run(call(prepared, self._keyless, Deadline(timeout), self._policy))

    def stream(
        self, capability: str, input: Any, *, timeout: float = CALL_SECONDS, **options: Unpack[CallArguments]
    ) -> EventStream:
        """As `call`, with its events. Goes on after a broken connection where it was; raises at the end what `call`
        would."""
        prepared = requests.prepare_call(capability, input, CallOptions(**options))
        follower = Follower(Deadline(timeout), self._policy, prepared=prepared, keyless=self._keyless)
        return EventStream(follower, self._events(follower))

    def resume(
        self, action_id: str, *, on_wait: OnWait | None = None, timeout: float = CALL_SECONDS
    ) -> Result:
        """Go on with an action by its id, as `call` with its key would: join whoever runs it, or have it run if it is
        ready and nobody does. Raises what `call` would; what has ended is told, and never run again."""
        return self._run(resume(action_id, on_wait, Deadline(timeout), self._policy))

    def resume_stream(
        self,
        action_id: str,
        *,
        after: str = "",
        on_wait: OnWait | None = None,
        timeout: float = CALL_SECONDS,
    ) -> EventStream:
        """As `resume`, with its events after a cursor."""
        follower = ResumeFollower(
            Deadline(timeout), self._policy, action_id=action_id, cursor=after, on_wait=on_wait
        )
        return EventStream(follower, self._events(follower))

    def submit(
        self,
        capability: str,
        input: Any,
        *,
        queue: str = "",
        priority: int | None = None,
        delay: Seconds | None = None,
        ready_time: datetime | None = None,
        timeout: float = READ_SECONDS,
        **options: Unpack[SubmitArguments],
    ) -> Submitted:
        """Store an action for a server to run, and return; `wait` and `watch` show how it ends.

        It is not run before `delay` has passed, or before `ready_time`. Priority 0 comes first, 9 last, 5 unless said.
        `timeout` bounds the storing alone. `key` as of `call`: with a key that is known you get its holder.
        """
        prepared = requests.prepare_call(capability, input, CallOptions(**options))
        place = Place(queue=queue, priority=priority, delay=delay, ready_time=ready_time)
        return self._run(submit(prepared, place, self._keyless, Deadline(timeout), self._policy))

    def submit_batch(
        self, submissions: Iterable[Submission], *, timeout: float = CALL_SECONDS
    ) -> Sequence[Answer]:
        """Store many; for each, in their order, the Submitted or the PlacetError that `submit` would have raised.

        Any number: they travel 500 at a time, and `timeout` bounds all of them together. What is wrong with one does
        not touch the others. The action of a Submitted has id, state and cursor alone. Raises only ValueError and
        TypeError, for what is not JSON, before anything is sent.
        """
        items = batch.prepare_batch(submissions)
        return self._run(batch.submit_batch(items, self._keyless, Deadline(timeout), self._policy))

    def watch(self, action_id: str, *, after: str = "", timeout: float | None = None) -> EventStream:
        """Events after a cursor, first history, then live, to the end of the action; its ending is in the last
        event."""
        follower = Follower(Deadline(timeout), self._policy, action_id=action_id, cursor=after)
        return EventStream(follower, self._events(follower))

    def watch_descendants(
        self, action_id: str, *, after: str = "", timeout: float | None = None
    ) -> FeedStream[event_pb2.ActionEvent]:
        """The lives of an action and of all that it has called, in the order in which they were stored, until its own
        end; without chunks, progress and outputs. Only of an action without a parent."""
        request = requests.descendants_request(action_id, after)
        follower = FeedFollower(Deadline(timeout), self._policy, request)
        return FeedStream(follower, self._events(follower))

    def watch_events(
        self,
        *,
        capabilities: Iterable[str] = (),
        types: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        after: str = "",
        from_now: bool = False,
        timeout: float | None = None,
    ) -> FeedStream[event_pb2.ActionEvent]:
        """What happens to all actions of the tenant: their lives, without chunks and progress, in the order in which it
        was stored. First the past, unless `from_now` or `after` a cursor of the same filter, then live, until you leave
        or `timeout` seconds are over.

        `types` are names such as "settled". A stream that breaks goes on where it was. Raises CursorExpiredError.
        """
        request = requests.events_request(capabilities, types, labels, after=after, from_now=from_now)
        follower = FeedFollower(Deadline(timeout), self._policy, request)
        return FeedStream(follower, self._events(follower))

    def get(self, action_id: str, *, timeout: float = READ_SECONDS) -> action_pb2.Action:
        action: action_pb2.Action = self._ask("GetAction", requests.get_request(action_id), timeout).action
        return action

    def get_by_key(self, capability: str, key: str, *, timeout: float = READ_SECONDS) -> action_pb2.Action:
        """What became of a key."""
        request = requests.get_by_key_request(capability, key)
        action: action_pb2.Action = self._ask("GetAction", request, timeout).action
        return action

    def list(
        self,
        *,
        capabilities: Iterable[str] = (),
        states: Iterable[str] = (),
        requester: str = "",
        labels: Mapping[str, str] | None = None,
        create_time_min: datetime | None = None,
        create_time_max: datetime | None = None,
        action_id_prefix: str = "",
        parent_id: str = "",
        root_id: str = "",
        queue: str = "",
        agent_runs: bool = False,
        page_size: int = 0,
        timeout: float = READ_SECONDS,
    ) -> Iterator[action_pb2.Action]:
        """All that match, newest first, without payloads; pages are fetched as needed, each within `timeout`.

        `parent_id`: what it has called; `root_id`: all below it. Those are in no order of time. `agent_runs`: runs of
        agents alone.
        """
        request = requests.list_request(
            capabilities=capabilities,
            states=states,
            requester=requester,
            labels=labels,
            create_time_min=create_time_min,
            create_time_max=create_time_max,
            action_id_prefix=action_id_prefix,
            parent_id=parent_id,
            root_id=root_id,
            queue=queue,
            agent_runs=agent_runs,
            page_size=page_size,
        )
        return self._pages("ListActions", request, "actions", timeout)

    def wait(self, action_id: str, *, timeout: float = CALL_SECONDS) -> action_pb2.Action:
        """The action once it is terminal or ambiguous, or as it is after `timeout` seconds."""
        return self._run(wait(action_id, Deadline(timeout), self._policy))

    def cancel(self, action_id: str, reason: str = "", *, timeout: float = READ_SECONDS) -> action_pb2.Action:
        """Asks for it and returns at once; the state is CANCELLED only when the handler has stopped."""
        request = runtime_service_pb2.CancelActionRequest(action_id=action_id, reason=reason)
        action: action_pb2.Action = self._ask("CancelAction", request, timeout).action
        return action

    def cancel_all(
        self,
        *,
        reason: str = "",
        validate_only: bool = False,
        timeout: float = CALL_SECONDS,
        **which: Unpack[Which],
    ) -> CancelCount:
        """Asks all open actions that match to stop, newest first, as `cancel` does one: none of them begins an attempt
        any more. At least one argument says which. `validate_only` counts, and changes nothing.
        """
        request = requests.cancel_all_request(which, reason, validate_only=validate_only)
        return self._run(cancel_all(request, Deadline(timeout), self._policy))

    def whoami(self, *, timeout: float = READ_SECONDS) -> runtime_service_pb2.GetCallerResponse:
        response: runtime_service_pb2.GetCallerResponse
        response = self._ask("GetCaller", runtime_service_pb2.GetCallerRequest(), timeout)
        return response

    def server_info(self, *, timeout: float = READ_SECONDS) -> runtime_service_pb2.GetServerInfoResponse:
        response: runtime_service_pb2.GetServerInfoResponse
        response = self._ask("GetServerInfo", runtime_service_pb2.GetServerInfoRequest(), timeout)
        return response


def _open_channel(address: Address) -> grpc.Channel:
    if address.tls is None:
        return grpc.insecure_channel(address.target, address.options())
    return grpc.secure_channel(address.target, address.tls.credentials(), address.options())
