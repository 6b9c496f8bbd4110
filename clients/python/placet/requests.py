"""Requests about actions, from plain arguments, and what all requests are made of. Pure."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from google.protobuf import duration_pb2, timestamp_pb2

from placet.v1 import action_pb2, runtime_service_pb2

Seconds: TypeAlias = float | timedelta
OnCallerGone = Literal["cancel", "detach"]
OnWait = Literal["fail", "return", "hold"]
OnDuplicate = Literal["attach", "refuse"]
OnBusy = Literal["refuse", "queue", "cancel_previous"]
DurabilityWord = Literal["ephemeral", "single_process", "shared"]

TYPE_PREFIX = "placet.action."
_MESSAGE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_ON_CALLER_GONE = {"cancel": action_pb2.ON_CALLER_GONE_CANCEL, "detach": action_pb2.ON_CALLER_GONE_DETACH}
_ON_WAIT = {
    "fail": action_pb2.ON_WAIT_FAIL,
    "return": action_pb2.ON_WAIT_RETURN,
    "hold": action_pb2.ON_WAIT_HOLD,
}
_ON_DUPLICATE = {"attach": action_pb2.ON_DUPLICATE_ATTACH, "refuse": action_pb2.ON_DUPLICATE_REFUSE}
_ON_BUSY = {
    "refuse": action_pb2.ON_BUSY_REFUSE,
    "queue": action_pb2.ON_BUSY_QUEUE,
    "cancel_previous": action_pb2.ON_BUSY_CANCEL_PREVIOUS,
}
_DURABILITY = {
    "ephemeral": action_pb2.DURABILITY_CLASS_EPHEMERAL,
    "single_process": action_pb2.DURABILITY_CLASS_SINGLE_PROCESS,
    "shared": action_pb2.DURABILITY_CLASS_SHARED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """An invocation that can be sent as often as needed."""

    invocation: action_pb2.Invocation
    key_is_automatic: bool
    message_id: str = ""
    message_time: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def capability(self) -> str:
        return self.invocation.capability

    @property
    def key(self) -> str:
        return self.invocation.options.idempotency_key

    @property
    def holds(self) -> bool:
        """For people, too."""
        return self.invocation.options.on_wait == action_pb2.ON_WAIT_HOLD

    @property
    def returns_waiting(self) -> bool:
        """What waits for people is an answer."""
        return self.invocation.options.on_wait == action_pb2.ON_WAIT_RETURN

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Which message it is, and of when."""
        if not self.message_id:
            return ()
        # Tied to its action by its key, it may be of now whenever it is sent; without one it must grow old.
        time = datetime.now(UTC) if self.key else self.message_time
        text = time.isoformat(timespec="microseconds").replace("+00:00", "Z")
        return (("placet-message-id", self.message_id), ("placet-message-time", text))

    def without_key(self) -> PreparedCall:
        invocation = action_pb2.Invocation()
        invocation.CopyFrom(self.invocation)
        invocation.options.idempotency_key = ""
        return replace(self, invocation=invocation, key_is_automatic=False)

    def execute_request(self) -> runtime_service_pb2.ExecuteRequest:
        return runtime_service_pb2.ExecuteRequest(invocation=self.invocation)

    def stream_request(self) -> runtime_service_pb2.ExecuteStreamRequest:
        return runtime_service_pb2.ExecuteStreamRequest(invocation=self.invocation)

    def submit_request(self, place: Place) -> runtime_service_pb2.SubmitRequest:
        request = runtime_service_pb2.SubmitRequest(
            invocation=self.invocation, queue=place.queue, priority=place.priority
        )
        if place.delay is not None:
            request.delay.CopyFrom(duration(place.delay))
        ready_time = timestamp(place.ready_time)
        if ready_time is not None:
            request.ready_time.CopyFrom(ready_time)
        return request

    def lookup_request(self) -> runtime_service_pb2.GetActionRequest:
        return get_by_key_request(self.capability, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in line a submitted action stands. Raises ValueError for a delay and a time together."""

    queue: str = ""
    priority: int | None = None
    delay: Seconds | None = None
    ready_time: datetime | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.ready_time is not None:
            raise ValueError("delay and ready_time exclude each other")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """What `call`, `stream` and `submit` take beside capability and input. `session`: of an agent, which conversation
    it is a run of; `on_busy`: what becomes of it if that has one that is not over.
    """

    version: str = ""
    key: str | None = None
    attempt_timeout: Seconds | None = None
    on_caller_gone: OnCallerGone | None = None
    on_wait: OnWait | None = None
    on_duplicate: OnDuplicate | None = None
    require_durability: DurabilityWord | None = None
    labels: Mapping[str, str] | None = None
    message_id: str = ""
    session: str = ""
    on_busy: OnBusy | None = None


class SubmitArguments(TypedDict, total=False):
    """The same, as keyword arguments of `submit`, which nobody waits for."""

    version: str
    key: str | None
    attempt_timeout: Seconds | None
    on_duplicate: OnDuplicate | None
    require_durability: DurabilityWord | None
    labels: Mapping[str, str] | None
    message_id: str
    session: str
    on_busy: OnBusy | None


class CallArguments(SubmitArguments, total=False):
    """The same, as keyword arguments of `call` and `stream`."""

    on_caller_gone: OnCallerGone | None
    on_wait: OnWait | None


def prepare_call(capability: str, input: Any, options: CallOptions) -> PreparedCall:
    """Without `key` a fresh one is made; key "" sends none. Raises TypeError or ValueError for what is not JSON, and
    for a message_id that cannot be one."""
    if options.message_id and not _MESSAGE_ID.fullmatch(options.message_id):
        raise ValueError("message_id is 1 to 128 of letters, digits, '.', '_', ':' and '-'")
    key = str(uuid.uuid4()) if options.key is None else options.key
    sent = action_pb2.InvocationOptions(
        idempotency_key=key,
        timeout=None if options.attempt_timeout is None else duration(options.attempt_timeout),
        labels=options.labels or {},
        session_id=options.session,
    )
    if options.on_busy is not None:
        sent.on_busy = _ON_BUSY[options.on_busy]
    if options.on_caller_gone is not None:
        sent.on_caller_gone = _ON_CALLER_GONE[options.on_caller_gone]
    if options.on_wait is not None:
        sent.on_wait = _ON_WAIT[options.on_wait]
    if options.on_duplicate is not None:
        sent.on_duplicate = _ON_DUPLICATE[options.on_duplicate]
    if options.require_durability is not None:
        sent.require_durability = _DURABILITY[options.require_durability]
    invocation = action_pb2.Invocation(
        capability=capability, version=options.version, input_json=input_text(input), options=sent
    )
    return PreparedCall(
        invocation=invocation,
        key_is_automatic=options.key is None,
        message_id=options.message_id,
    )


def input_text(input: Any) -> str:
    """JSON text. Bytes are JSON text already; pydantic models write themselves."""
    if isinstance(input, bytes):
        return input.decode()
    if hasattr(input, "model_dump_json"):
        return str(input.model_dump_json(by_alias=True))
    return json.dumps(input, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def get_request(action_id: str) -> runtime_service_pb2.GetActionRequest:
    return runtime_service_pb2.GetActionRequest(action_id=action_id, view=action_pb2.ACTION_VIEW_FULL)


def get_by_key_request(capability: str, key: str) -> runtime_service_pb2.GetActionRequest:
    return runtime_service_pb2.GetActionRequest(
        key=runtime_service_pb2.KeyRef(capability=capability, idempotency_key=key),
        view=action_pb2.ACTION_VIEW_FULL,
    )


def list_request(
    *,
    capabilities: Iterable[str],
    states: Iterable[str],
    requester: str,
    labels: Mapping[str, str] | None,
    create_time_min: datetime | None,
    create_time_max: datetime | None,
    action_id_prefix: str,
    parent_id: str,
    root_id: str,
    queue: str,
    agent_runs: bool,
    page_size: int,
) -> runtime_service_pb2.ListActionsRequest:
    """`states` are words such as "running", in either case. Raises ValueError for one that does not exist."""
    return runtime_service_pb2.ListActionsRequest(
        page_size=page_size,
        filter=_actions(
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
        ),
    )


def descendants_request(action_id: str, after: str) -> runtime_service_pb2.WatchActionRequest:
    return runtime_service_pb2.WatchActionRequest(action_id=action_id, after_cursor=after, descendants=True)


def events_request(
    capabilities: Iterable[str],
    types: Iterable[str],
    labels: Mapping[str, str] | None,
    *,
    after: str,
    from_now: bool,
) -> runtime_service_pb2.WatchEventsRequest:
    """`types` with or without their prefix."""
    return runtime_service_pb2.WatchEventsRequest(
        after_cursor=after,
        from_now=from_now,
        filter=runtime_service_pb2.EventFilter(
            capabilities=list(capabilities),
            types=[TYPE_PREFIX + name.removeprefix(TYPE_PREFIX) for name in types],
            labels=labels or {},
        ),
    )


class Which(TypedDict, total=False):
    """Which actions `cancel_all` means, as keyword arguments; members are joined by and. `states` as of `list`."""

    capabilities: Iterable[str]
    states: Iterable[str]
    requester: str
    labels: Mapping[str, str] | None
    create_time_min: datetime | None
    create_time_max: datetime | None
    parent_id: str
    root_id: str
    queue: str
    agent_runs: bool


def cancel_all_request(
    which: Which, reason: str, *, validate_only: bool
) -> runtime_service_pb2.CancelActionsRequest:
    """Raises ValueError as `list_request` does, and if nothing says which."""
    found = _actions(**which)
    if not found.ByteSize():
        raise ValueError(
            "say which: some of capabilities, states, requester, labels, create_time_… and queue"
        )
    return runtime_service_pb2.CancelActionsRequest(filter=found, reason=reason, validate_only=validate_only)


def _actions(
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
) -> runtime_service_pb2.ActionFilter:
    known = action_pb2.ActionState
    return runtime_service_pb2.ActionFilter(
        capabilities=list(capabilities),
        states=[known.Value("ACTION_STATE_" + state.upper()) for state in states],
        requester=requester,
        labels=labels or {},
        create_time_min=timestamp(create_time_min),
        create_time_max=timestamp(create_time_max),
        action_id_prefix=action_id_prefix,
        parent_id=parent_id,
        root_id=root_id,
        queue=queue,
        agent_runs=agent_runs,
    )


def resume_action_request(action_id: str, on_wait: OnWait | None) -> runtime_service_pb2.ResumeActionRequest:
    request = runtime_service_pb2.ResumeActionRequest(action_id=action_id)
    if on_wait is not None:
        request.on_wait = _ON_WAIT[on_wait]
    return request


def resume_stream_request(
    action_id: str, after: str, on_wait: OnWait | None
) -> runtime_service_pb2.ResumeActionStreamRequest:
    request = runtime_service_pb2.ResumeActionStreamRequest(action_id=action_id, after_cursor=after)
    if on_wait is not None:
        request.on_wait = _ON_WAIT[on_wait]
    return request


def wait_request(action_id: str, seconds: float) -> runtime_service_pb2.WaitActionRequest:
    return runtime_service_pb2.WaitActionRequest(action_id=action_id, timeout=duration(seconds))


def duration(span: Seconds) -> duration_pb2.Duration:
    sent = duration_pb2.Duration()
    sent.FromTimedelta(span if isinstance(span, timedelta) else timedelta(seconds=span))
    return sent


def timestamp(moment: datetime | None) -> timestamp_pb2.Timestamp | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; use datetime.now(timezone.utc)")
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp
