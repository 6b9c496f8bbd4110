"""A status of a proxy, of another service or of nobody says nothing about the action, and breaks no client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from tests.conformance.conftest import Dial
from tests.conformance.hosted import hosted
from tests.conformance.program import Answer


def details(*infos: error_details_pb2.ErrorInfo) -> bytes:
    status = status_pb2.Status(code=9, message="no")
    for info in infos:
        status.details.append(
            AnyMessage(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
        )
    raw: bytes = status.SerializeToString()
    return raw


FOREIGN = error_details_pb2.ErrorInfo(domain="proxy.example", reason="HANDLER_FAILED")
NEWER = error_details_pb2.ErrorInfo(domain="placet.dev", reason="INVENTED_LATER", metadata={"a": "b"})
REPLIES: dict[str, bytes | None] = {
    "nothing": None,
    "foreign": details(FOREIGN),
    "newer": details(NEWER),
    "broken": b"\xff\xff\xff",
    "none": details(),
}


class Foreign(grpc.GenericRpcHandler):
    """Answers every method with the details that the call's metadata names."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            named = dict(context.invocation_metadata() or ())["x-reply"]
            raw = REPLIES[str(named)]
            trailers = () if raw is None else (("grpc-status-details-bin", raw),)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no", trailers)

        return grpc.unary_unary_rpc_method_handler(answer)


@asynccontextmanager
async def foreign() -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Foreign(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with hosted(foreign()) as running:
        yield running


def call(dial: Dial, target: str, reply: str) -> Answer:
    return dial(target).call("GetCaller", metadata={"x-reply": reply})


@pytest.mark.parametrize("reply", ["nothing", "foreign", "none"])
def test_a_status_without_our_error_info_is_a_code_and_a_message(dial: Dial, target: str, reply: str) -> None:
    answer = call(dial, target, reply)
    assert ("FAILED_PRECONDITION", "no") == (answer.code, answer.message)
    assert "placet.dev" not in [domain for domain, _, _ in answer.infos]
    assert ((), {}) == (answer.outcomes, answer.trailers)


def test_details_that_are_none_do_not_break_a_client(dial: Dial, target: str) -> None:
    answer = call(dial, target, "broken")
    assert () == answer.infos
    assert answer.code in ("FAILED_PRECONDITION", "INTERNAL")


def test_a_reason_of_a_newer_server_is_read_as_its_name(dial: Dial, target: str) -> None:
    answer = call(dial, target, "newer")
    assert ("INVENTED_LATER", {"a": "b"}) == (answer.reason, answer.variables)


def test_a_server_that_is_not_there_is_unavailable_without_a_reason(dial: Dial) -> None:
    answer = dial("127.0.0.1:1").call("GetCaller", seconds=5)
    assert ("UNAVAILABLE", ()) == (answer.code, answer.infos)
