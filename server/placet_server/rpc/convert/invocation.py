"""Invocation message → model, on the hot path, and where a submitted one waits."""

from __future__ import annotations

from placet.v1 import action_pb2, runtime_service_pb2
from placet_server.model.action import (
    PRIORITY_DEFAULT,
    QUEUE_DEFAULT,
    Invocation,
    OnCallerGone,
    OnDuplicate,
    OnWait,
    Submission,
)
from placet_server.model.session import OnBusy, SessionUse
from placet_server.rpc.convert.enumeration import (
    DURABILITY_MEMBER,
    ON_BUSY,
    ON_CALLER_GONE,
    ON_DUPLICATE,
    ON_WAIT,
)
from placet_server.rpc.convert.time import microseconds, seconds

_SAYS_CANCEL = action_pb2.ON_CALLER_GONE_CANCEL


def invocation_of(message: action_pb2.Invocation) -> Invocation:
    """The message has passed validation."""
    options = message.options
    gone = options.on_caller_gone
    return Invocation(
        capability=message.capability,
        version=message.version,
        input_json=message.input_json,
        idempotency_key=options.idempotency_key,
        timeout_seconds=seconds(options.timeout) if options.HasField("timeout") else None,
        on_caller_gone=ON_CALLER_GONE.get(gone, OnCallerGone.CANCEL),
        ends_with_its_caller=gone == _SAYS_CANCEL,
        on_wait=ON_WAIT.get(options.on_wait, OnWait.FAIL),
        on_duplicate=ON_DUPLICATE.get(options.on_duplicate, OnDuplicate.ATTACH),
        require_durability=DURABILITY_MEMBER.get(options.require_durability),
        labels=dict(options.labels) if options.labels else {},
        session=_session_of(options) if options.session_id else None,
    )


def _session_of(options: action_pb2.InvocationOptions) -> SessionUse:
    return SessionUse(session_id=options.session_id, on_busy=ON_BUSY.get(options.on_busy, OnBusy.REFUSE))


def submission_of(request: runtime_service_pb2.SubmitRequest) -> Submission:
    """Raises MalformedRequest."""
    start = request.WhichOneof("start")
    return Submission(
        queue=request.queue or QUEUE_DEFAULT,
        priority=request.priority if request.HasField("priority") else PRIORITY_DEFAULT,
        ready_time_us=microseconds(request.ready_time) if start == "ready_time" else None,
        delay_seconds=seconds(request.delay) if start == "delay" else None,
    )
