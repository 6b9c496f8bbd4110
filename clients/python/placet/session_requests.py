"""Sessions: requests from plain arguments. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from placet.requests import Seconds, duration
from placet.v1 import session_service_pb2 as pb


def create_request(
    agent: str,
    title: str,
    labels: Mapping[str, str] | None,
    idle_time: Seconds | None,
    key: str | None,
) -> pb.CreateSessionRequest:
    """Without `key` a fresh one is made, so that it may be sent again."""
    request = pb.CreateSessionRequest(
        agent=agent,
        title=title,
        labels=labels or {},
        idempotency_key=str(uuid.uuid4()) if key is None else key,
    )
    if idle_time is not None:
        request.idle_time.CopyFrom(duration(idle_time))
    return request


def resume_request(session_id: str, resume_token: str, key: str | None) -> pb.ResumeSessionRequest:
    """The same."""
    return pb.ResumeSessionRequest(
        session_id=session_id,
        resume_token=resume_token,
        idempotency_key=str(uuid.uuid4()) if key is None else key,
    )
