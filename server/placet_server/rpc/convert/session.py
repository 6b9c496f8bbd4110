"""Sessions and what was said in them ↔ messages."""

from __future__ import annotations

from placet.v1 import session_service_pb2 as pb
from placet_server.harness.spoken import spoken
from placet_server.model.session import IDLE_SECONDS_DEFAULT, NewSession, Session, SessionState
from placet_server.rpc.convert.ask import part_messages
from placet_server.rpc.convert.called import add_calls
from placet_server.rpc.convert.enumeration import numbers
from placet_server.rpc.convert.time import seconds, set_timestamp
from placet_server.store.session_run import Said

SESSION_STATE = numbers(pb.SessionState, "SESSION_STATE_", SessionState)
PARTS_TOLD_MAX = 256


def new_session_of(request: pb.CreateSessionRequest) -> NewSession:
    return NewSession(
        agent=request.agent,
        title=request.title,
        labels=dict(request.labels),
        idle_seconds=seconds(request.idle_time) if request.HasField("idle_time") else IDLE_SECONDS_DEFAULT,
        idempotency_key=request.idempotency_key,
    )


def session_message(session: Session) -> pb.Session:
    message = pb.Session(
        session_id=session.session_id,
        agent=session.agent,
        subject=session.subject,
        state=SESSION_STATE[session.state],
        active_action_id=session.active_action_id or "",
        runs=session.run_count,
        title=session.title,
        labels=session.labels,
        resume_token=session.resume_token,
    )
    set_timestamp(message.create_time, session.create_time_us)
    set_timestamp(message.update_time, session.update_time_us)
    set_timestamp(message.expire_time, session.expire_time_us)
    return message


def said_message(said: Said) -> pb.SessionMessage:
    told = spoken(said)
    message = pb.SessionMessage(
        number=said.number,
        action_id=said.action_id,
        role=pb.MESSAGE_ROLE_AGENT if told.said_by_agent else pb.MESSAGE_ROLE_USER,
        problem=told.problem,
        parts=part_messages(told.parts[:PARTS_TOLD_MAX]),
    )
    add_calls(message.calls, told.calls)
    set_timestamp(message.create_time, said.create_time_us)
    return message
