"""Bytes that are no request, requests out of bounds, calls to nowhere: each refused, typed, before any handler."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from placet.v1 import action_pb2, ask_pb2, catalog_service_pb2, operations_service_pb2
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as pb
from placet.v1 import session_service_pb2 as sessions
from placet_server.rpc.call import Rpc
from tests.rpc.support import ACTION_ID, ALL_PATHS, Setup, bearer, refusal, send_bytes, serving

PATHS_WITH_FIELDS = [path for path in ALL_PATHS if not path.endswith(("/GetCaller", "/GetServerInfo"))]


def out_of_reach() -> tuple[Setup, list[str]]:
    entered: list[str] = []

    async def enter(rpc: Any) -> None:
        entered.append(rpc.method.path)

    return Setup(behaviour=enter), entered


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize(
    "raw",
    [b"\xff\xff\xff", b"\x0a\xff", b"\x0a\x05abc", b"\x08" * 20 + b"\xff"],
    ids=["tags", "length", "short", "mixed"],
)
async def test_garbage_is_malformed_on_every_rpc(path: str, raw: bytes) -> None:
    setup, entered = out_of_reach()
    async with serving(setup) as running:
        refused = await refusal(send_bytes(running.channel, path, raw))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)
    assert [] == entered


async def test_no_random_bytes_make_a_fault_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    dice = random.Random(7)
    async with serving() as running:
        for _ in range(300):
            raw = dice.randbytes(dice.randrange(60))
            try:
                await send_bytes(running.channel, dice.choice(ALL_PATHS), raw)
            except grpc.aio.AioRpcError as error:
                assert grpc.StatusCode.INVALID_ARGUMENT == error.code()  # noqa: PT017
    assert [] == caplog.records


INVOKE = "/placet.v1.RuntimeService/Execute"


def execute(**invocation: Any) -> bytes:
    return pb.ExecuteRequest(invocation=action_pb2.Invocation(**invocation)).SerializeToString()


ASK = "/placet.v1.RuntimeService/Ask"
TEXT = ask_pb2.MessagePart(text="x")


def asked(**members: Any) -> bytes:
    return pb.AskRequest(**({"agent": "a", "parts": [TEXT]} | members)).SerializeToString()


# A member with number 1000, true: by itself, and in the first member of a request.
LATER = b"\xc0\x3e\x01"
LATER_FILTER = b"\x0a\x03" + LATER

OPTIONS = action_pb2.InvocationOptions
BROKEN: dict[str, tuple[str, bytes, str]] = {
    "nothing": (INVOKE, b"", "invocation"),
    "no capability": (INVOKE, execute(input_json="{}"), "invocation.capability"),
    "capability too long": (INVOKE, execute(capability="a" * 129), "invocation.capability"),
    "key too long": (
        INVOKE,
        execute(capability="a", options=OPTIONS(idempotency_key="k" * 257)),
        "invocation.options.idempotency_key",
    ),
    "blank key": (
        INVOKE,
        execute(capability="a", options=OPTIONS(idempotency_key=" ")),
        "invocation.options.idempotency_key",
    ),
    "zero timeout": (
        INVOKE,
        execute(capability="a", options=OPTIONS(timeout=Duration())),
        "invocation.options.timeout",
    ),
    "too many labels": (
        INVOKE,
        execute(capability="a", options=OPTIONS(labels={str(n): "" for n in range(17)})),
        "invocation.options.labels",
    ),
    "unknown enum number": (
        INVOKE,
        b"\x0a\x07\x0a\x01a\x22\x02\x20\x09",
        "invocation.options.on_caller_gone",
    ),
    "nobody asked": (ASK, asked(agent=""), "agent"),
    "no question of a stream": (f"{ASK}Stream", b"", "ask"),
    "nothing said in a stream": (
        f"{ASK}Stream",
        pb.AskStreamRequest(ask=pb.AskRequest(agent="a")).SerializeToString(),
        "ask.parts",
    ),
    "nothing said": (ASK, pb.AskRequest(agent="a").SerializeToString(), "parts"),
    "too much said": (ASK, asked(parts=[TEXT] * 65), "parts"),
    "an empty part": (ASK, asked(parts=[ask_pb2.MessagePart()]), "parts[0].part"),
    "no media type": (
        ASK,
        asked(parts=[ask_pb2.MessagePart(binary=ask_pb2.BinaryPart(media_type="x", data=b"x"))]),
        "parts[0].binary.media_type",
    ),
    "no name of an argument": (ASK, asked(arguments={"a-b": ""}), "arguments['a-b']"),
    "turns of nothing": ("/placet.v1.RuntimeService/ListTurns", b"", "action_id"),
    "turns without end": (
        "/placet.v1.RuntimeService/ListTurns",
        pb.ListTurnsRequest(action_id=ACTION_ID, page_size=501).SerializeToString(),
        "page_size",
    ),
    "a session of no id": (
        INVOKE,
        execute(capability="a", options=OPTIONS(session_id="x")),
        "invocation.options.session_id",
    ),
    "busy in an unknown way": (
        INVOKE,
        execute(capability="a", options=OPTIONS(on_busy=9)),  # type: ignore[arg-type]
        "invocation.options.on_busy",
    ),
    "no session": ("/placet.v1.SessionService/GetSession", b"", "session_id"),
    "a session with nobody": (
        "/placet.v1.SessionService/CreateSession",
        sessions.CreateSessionRequest(agent="A b").SerializeToString(),
        "agent",
    ),
    "a session for a moment": (
        "/placet.v1.SessionService/CreateSession",
        sessions.CreateSessionRequest(idle_time=Duration(seconds=59)).SerializeToString(),
        "idle_time",
    ),
    "messages without end": (
        "/placet.v1.SessionService/ListMessages",
        sessions.ListMessagesRequest(session_id=ACTION_ID, page_size=501).SerializeToString(),
        "page_size",
    ),
    "no reference": ("/placet.v1.RuntimeService/GetAction", b"", "ref"),
    "no uuid": (
        "/placet.v1.RuntimeService/GetAction",
        pb.GetActionRequest(action_id="x").SerializeToString(),
        "action_id",
    ),
    "page too large": (
        "/placet.v1.RuntimeService/ListActions",
        pb.ListActionsRequest(page_size=1001).SerializeToString(),
        "page_size",
    ),
    "negative page": (
        "/placet.v1.RuntimeService/ListActions",
        pb.ListActionsRequest(page_size=-1).SerializeToString(),
        "page_size",
    ),
    "cancelled without a filter": ("/placet.v1.RuntimeService/CancelActions", b"", "filter"),
    "cancelled by what only a later release knows": (
        "/placet.v1.RuntimeService/CancelActions",
        pb.CancelActionsRequest(filter=pb.ActionFilter(queue="q")).SerializeToString() + LATER_FILTER,
        "filter",
    ),
    "redriven, not looked at, as only a later release knows": (
        "/placet.v1.RecoveryService/Redrive",
        recovery.RedriveRequest(selection=recovery.EndedSelection(action_ids=[ACTION_ID])).SerializeToString()
        + LATER,
        "request",
    ),
    "too many cancelled": (
        "/placet.v1.RuntimeService/CancelActions",
        pb.CancelActionsRequest(filter=pb.ActionFilter(queue="q"), page_size=1001).SerializeToString(),
        "page_size",
    ),
    "no manifest": ("/placet.v1.CatalogService/AdmitManifest", b"", "manifest"),
    "wait too long": (
        "/placet.v1.RuntimeService/WaitAction",
        pb.WaitActionRequest(action_id=ACTION_ID, timeout=Duration(seconds=61)).SerializeToString(),
        "timeout",
    ),
}


SUBMIT = "/placet.v1.RuntimeService/Submit"
REDRIVE = "/placet.v1.RecoveryService/Redrive"
DEAD_LETTERS = "/placet.v1.RecoveryService/ListDeadLetters"


def submit(**members: Any) -> bytes:
    invocation = action_pb2.Invocation(capability="a", input_json="{}")
    return pb.SubmitRequest(invocation=invocation, **members).SerializeToString()


def redrive(selection: recovery.EndedSelection | None = None, **members: Any) -> bytes:
    one = recovery.EndedSelection(action_ids=[ACTION_ID])
    return recovery.RedriveRequest(selection=selection or one, **members).SerializeToString()


BOTH = recovery.EndedSelection(action_ids=[ACTION_ID], filter=recovery.DeadLetterFilter())
MANY = [f"0199b0c0-0000-7000-8000-{number:012}" for number in range(1001)]
BROKEN |= {
    "nothing submitted": (SUBMIT, b"", "invocation"),
    "queue of no shape": (SUBMIT, submit(queue="Nightly"), "queue"),
    "queue too long": (SUBMIT, submit(queue="q" * 65), "queue"),
    "priority above": (SUBMIT, submit(priority=10), "priority"),
    "priority below": (SUBMIT, submit(priority=-1), "priority"),
    "delay into the past": (SUBMIT, submit(delay=Duration(seconds=-1)), "delay"),
    "delay of more than a year": (SUBMIT, submit(delay=Duration(seconds=31536001)), "delay"),
    "ready in the year 10000": (SUBMIT, submit(ready_time=Timestamp(seconds=253402300800)), "ready_time"),
    "tenant of no shape": (
        "/placet.v1.OperationsService/ListQueues",
        operations_service_pb2.ListQueuesRequest(tenant="--").SerializeToString(),
        "tenant",
    ),
    "paused by no name": (
        "/placet.v1.OperationsService/PauseQueue",
        operations_service_pb2.PauseQueueRequest(queue="").SerializeToString(),
        "queue",
    ),
    "paused for too long a reason": (
        "/placet.v1.OperationsService/PauseQueue",
        operations_service_pb2.PauseQueueRequest(queue="q", reason="r" * 513).SerializeToString(),
        "reason",
    ),
    "too many servers": (
        "/placet.v1.OperationsService/ListServers",
        operations_service_pb2.ListServersRequest(page_size=1001).SerializeToString(),
        "page_size",
    ),
    "no state of deliveries": (
        "/placet.v1.OperationsService/ListDeliveries",
        operations_service_pb2.ListDeliveriesRequest(
            filter=operations_service_pb2.DeliveryFilter(
                states=[operations_service_pb2.DELIVERY_STATE_UNSPECIFIED]
            )
        ).SerializeToString(),
        "filter.states[0]",
    ),
    "action of deliveries of no shape": (
        "/placet.v1.OperationsService/ListDeliveries",
        operations_service_pb2.ListDeliveriesRequest(
            filter=operations_service_pb2.DeliveryFilter(action_id="1")
        ).SerializeToString(),
        "filter.action_id",
    ),
    "no delivery": ("/placet.v1.OperationsService/GetDelivery", b"", "delivery_id"),
    "delivery of no tenant": (
        "/placet.v1.OperationsService/GetDelivery",
        operations_service_pb2.GetDeliveryRequest(tenant="A", delivery_id=ACTION_ID).SerializeToString(),
        "tenant",
    ),
    "nothing to send again": ("/placet.v1.OperationsService/RedeliverCallback", b"", "delivery_id"),
    "resumed for no tenant": (
        "/placet.v1.OperationsService/ResumeQueue",
        operations_service_pb2.ResumeQueueRequest(queue="q", tenant="A").SerializeToString(),
        "tenant",
    ),
    "empty batch": ("/placet.v1.RuntimeService/SubmitBatch", b"", "items"),
    "batch too large": (
        "/placet.v1.RuntimeService/SubmitBatch",
        pb.SubmitBatchRequest(items=[pb.SubmitRequest()] * 501).SerializeToString(),
        "items",
    ),
    "too many dead letters": (
        DEAD_LETTERS,
        recovery.ListDeadLettersRequest(page_size=1001).SerializeToString(),
        "page_size",
    ),
    "too many capabilities": (
        DEAD_LETTERS,
        recovery.ListDeadLettersRequest(
            filter=recovery.DeadLetterFilter(capabilities=["a"] * 33)
        ).SerializeToString(),
        "filter.capabilities",
    ),
    "nothing selected": (REDRIVE, b"", "selection"),
    "neither ids nor filter": (REDRIVE, b"\x0a\x00", "selection"),
    "ids and filter": (REDRIVE, redrive(BOTH), "selection"),
    "a filter that would select anew": (
        REDRIVE,
        recovery.RedriveRequest(
            selection=recovery.EndedSelection(filter=recovery.DeadLetterFilter()), idempotency_key="k"
        ).SerializeToString(),
        "",
    ),
    "the same id twice": (
        REDRIVE,
        redrive(recovery.EndedSelection(action_ids=[ACTION_ID] * 2)),
        "selection.action_ids",
    ),
    "too many ids": (REDRIVE, redrive(recovery.EndedSelection(action_ids=MANY)), "selection.action_ids"),
    "no uuid among ids": (
        REDRIVE,
        redrive(recovery.EndedSelection(action_ids=["x"])),
        "selection.action_ids[0]",
    ),
    "too many attempts": (REDRIVE, redrive(attempts=101), "attempts"),
    "less than no attempts": (REDRIVE, redrive(attempts=-1), "attempts"),
    "blank key of a redrive": (REDRIVE, redrive(idempotency_key=" "), "idempotency_key"),
    "reason too long": (REDRIVE, redrive(reason="r" * 513), "reason"),
}


@pytest.mark.parametrize(("path", "raw", "field"), BROKEN.values(), ids=BROKEN)
async def test_a_request_out_of_its_bounds_is_told_where(path: str, raw: bytes, field: str) -> None:
    setup, entered = out_of_reach()
    async with serving(setup) as running:
        refused = await refusal(send_bytes(running.channel, path, raw))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)
    assert field in [violation.field for violation in refused.bad_requests[0].field_violations]
    assert [] == entered


async def test_text_that_is_not_utf8_is_malformed() -> None:
    async with serving() as running:
        refused = await refusal(send_bytes(running.channel, INVOKE, b"\x0a\x03\x0a\x01\xff"))
    assert "MALFORMED_REQUEST" == refused.reason


@pytest.mark.parametrize(
    "path",
    [
        "/placet.v1.RuntimeService/Nope",
        "/placet.v1.Nope/Execute",
        "/Execute",
        "/",
        "/a/b/c",
        "/placet.v1.RuntimeService/",
    ],
)
@pytest.mark.parametrize("shape", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
async def test_a_method_that_does_not_exist_is_unimplemented_for_calls_of_every_shape(
    path: str, shape: str
) -> None:
    async def requests() -> Any:
        # Says nothing: the client's library calls an answer INTERNAL that comes while it still sends.
        await asyncio.Event().wait()
        yield b""

    async def send(channel: grpc.aio.Channel) -> None:
        method: Any = getattr(channel, shape)(path)
        call = method(requests() if shape.startswith("stream") else b"x", metadata=(), timeout=5)
        if shape.endswith("stream"):
            async for _ in call:
                pass
        else:
            await call

    async with serving() as running:
        refused = await refusal(send(running.channel))
    assert (grpc.StatusCode.UNIMPLEMENTED, "UNKNOWN_METHOD") == (refused.code, refused.reason)
    assert path == refused.infos[0].metadata["method"]


async def test_a_method_name_of_eight_thousand_letters_is_still_answered() -> None:
    async with serving() as running:
        refused = await refusal(send_bytes(running.channel, "/x/" + "a" * 7000))
    assert "UNKNOWN_METHOD" == refused.reason


async def test_invented_names_make_no_metrics() -> None:
    setup = Setup()
    async with serving(setup) as running:
        for number in range(20):
            await refusal(send_bytes(running.channel, f"/x/{number}"))
    assert [("unknown", "UNIMPLEMENTED")] == list(setup.metrics.rpcs.series)


async def test_ten_megabytes_reach_the_layers_rather_than_break_the_transport() -> None:
    setup, entered = out_of_reach()
    async with serving(setup) as running:
        await send_bytes(running.channel, INVOKE, execute(capability="a", input_json="x" * 10_000_000))
    assert [INVOKE] == entered


async def test_what_is_larger_than_the_transport_takes_ends_with_a_status_and_the_server_lives() -> None:
    setup, entered = out_of_reach()
    async with serving(setup) as running:
        refused = await refusal(send_bytes(running.channel, INVOKE, b"x" * (21 * 2**20)))
        await running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer())
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == refused.code
    assert ["/placet.v1.RuntimeService/GetCaller"] == entered


@pytest.mark.parametrize("size", [17_000, 100_000, 1_000_000])
async def test_too_much_metadata_ends_with_a_status_and_the_server_lives(size: int) -> None:
    setup, entered = out_of_reach()
    async with serving(setup) as running:
        metadata = (*bearer(), ("x-large", "a" * size))
        refused = await refusal(
            send_bytes(running.channel, INVOKE, execute(capability="a"), metadata=metadata)
        )
        await running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer())
    assert refused.code in (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
    )
    assert ["/placet.v1.RuntimeService/GetCaller"] == entered


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9])
async def test_a_deadline_that_is_over_ends_at_once(seconds: float) -> None:
    async def never(rpc: Rpc[Any]) -> None:
        await asyncio.Event().wait()

    async with serving(Setup(behaviour=never)) as running, asyncio.timeout(5):
        refused = await refusal(send_bytes(running.channel, INVOKE, execute(capability="a"), seconds=seconds))
    assert grpc.StatusCode.DEADLINE_EXCEEDED == refused.code


async def test_messages_without_rules_are_not_searched_for_them() -> None:
    from placet_server.rpc.validation import has_rules

    assert not has_rules(pb.GetCallerRequest.DESCRIPTOR, set())
    assert has_rules(pb.ExecuteRequest.DESCRIPTOR, set())
    assert has_rules(catalog_service_pb2.AdmitManifestRequest.DESCRIPTOR, set())
