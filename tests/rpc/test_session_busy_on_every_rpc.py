"""Whichever RPC asks for a run in a busy session, it gets the same refusal; with a key that is known, the same run; and
in its turn, the same order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor

from placet.testing.model_servers import Say, Stall, Step
from placet.v1 import action_pb2, ask_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet.v1 import session_service_pb2 as sessions
from placet.v1.session_service_pb2_grpc import SessionServiceStub
from placet_server.rpc.method import RUNTIME
from tests.core.kernels import until
from tests.postgres import Database
from tests.rpc.servers import Client
from tests.rpc.support import Refusal
from tests.rpc.test_ask_over_the_wire import served

QUEUE, CANCEL = action_pb2.ON_BUSY_QUEUE, action_pb2.ON_BUSY_CANCEL_PREVIOUS


def _takes_options(message: Descriptor, depth: int = 0) -> bool:
    return message.name == "InvocationOptions" or (
        depth < 4
        and any(
            field.message_type is not None and _takes_options(field.message_type, depth + 1)
            for field in message.fields
        )
    )


INVOKING = [method.name for method in RUNTIME.methods if _takes_options(method.input_type)]


def _invocation(session_id: str, key: str, text: str, on_busy: int) -> action_pb2.Invocation:
    return action_pb2.Invocation(
        capability="shop.helper",
        input_json=json.dumps({"parts": [{"text": text}]}),
        options=action_pb2.InvocationOptions(
            idempotency_key=key,
            session_id=session_id,
            on_busy=on_busy,  # type: ignore[arg-type]
        ),
    )


def _asked(invocation: action_pb2.Invocation) -> pb.AskRequest:
    (part,) = json.loads(invocation.input_json)["parts"]
    return pb.AskRequest(
        agent=invocation.capability,
        parts=[ask_pb2.MessagePart(text=part["text"])],
        options=invocation.options,
    )


REQUESTS: dict[str, Callable[[action_pb2.Invocation], Any]] = {
    "Execute": lambda invocation: pb.ExecuteRequest(invocation=invocation),
    "ExecuteStream": lambda invocation: pb.ExecuteStreamRequest(invocation=invocation),
    "Ask": _asked,
    "AskStream": lambda invocation: pb.AskStreamRequest(ask=_asked(invocation)),
    "Submit": lambda invocation: pb.SubmitRequest(invocation=invocation),
    "SubmitBatch": lambda invocation: pb.SubmitBatchRequest(items=[pb.SubmitRequest(invocation=invocation)]),
}


async def _told(client: Client, method: str, invocation: action_pb2.Invocation) -> tuple[str, dict[str, str]]:
    """The reason with what it names; or, "", which action it is, and whether that was known."""
    sending = getattr(client.runtime, method)(
        REQUESTS[method](invocation), metadata=client.metadata, timeout=20
    )
    try:
        if method in ("ExecuteStream", "AskStream"):
            event = await anext(aiter(sending))
            sending.cancel()
            return "", {"action_id": event.event.action_id}
        answer = await sending
    except grpc.aio.AioRpcError as error:
        refused = Refusal(error)
        return refused.reason, dict(refused.infos[0].metadata)
    if method != "SubmitBatch":
        return "", {"action_id": answer.action.action_id}
    (result,) = answer.results
    if result.WhichOneof("result") == "error":
        info = _info(result.error)
        return info.reason, dict(info.metadata)
    return "", {"action_id": result.submitted.action_id}


def _info(status: Any) -> Any:
    from google.rpc import error_details_pb2

    info = error_details_pb2.ErrorInfo()
    assert any(detail.Unpack(info) for detail in status.details)
    return info


async def _session(client: Client) -> str:
    stub: Any = SessionServiceStub(client.channel)
    made = await stub.CreateSession(sessions.CreateSessionRequest(), metadata=client.metadata)
    return str(made.session.session_id)


async def test_every_rpc_that_may_begin_a_run_says_the_same(database: Database, tmp_path: Path) -> None:
    assert set(REQUESTS) <= set(INVOKING), INVOKING
    script: list[Step] = [Stall(60.0), Say("Late.")]
    async with served(database, tmp_path, script) as (client, model):
        busy = await _session(client)
        _, active = await _told(client, "Submit", _invocation(busy, "first", "Hi.", 0))
        await until(lambda: len(model.requests) == 1, 20.0)
        refusals, held = {}, []
        for method in INVOKING:
            assert method in REQUESTS, f"{method} takes options, and has no row here"
            refusals[method] = await _told(client, method, _invocation(busy, f"r-{method}", "And?", 0))
        told = ("SESSION_BUSY", {"session_id": busy, "problem": "not_over", **active})
        assert dict.fromkeys(INVOKING, told) == refusals
        for method in ("Submit", "SubmitBatch", "ExecuteStream", "AskStream"):
            held.append(await _told(client, method, _invocation(busy, f"q-{method}", "And?", QUEUE)))
        assert [""] * 4 == [reason for reason, _ in held]
        # What is known is told, however it is asked for.
        for method in ("Submit", "SubmitBatch", "ExecuteStream", "AskStream"):
            assert ("", active) == await _told(client, method, _invocation(busy, "first", "Hi.", CANCEL))
            other = _invocation(await _session(client), "first", "Hi.", 0)
            reason, _ = await _told(client, method, other)
            assert "IDEMPOTENCY_CONFLICT" == reason
