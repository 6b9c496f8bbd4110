"""Times, spans, counts and sizes of nowhere: refused, alone, and nothing waits."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2, timestamp_pb2

from placet.v1 import approval_service_pb2 as approvals
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import operations_service_pb2
from placet.v1 import policy_service_pb2 as policy
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as pb
from tests.hostile.served import Client, Served
from tests.hostile.test_bytes_out_of_bounds import NUL, dead_letters, invocation, options, redrive, submission
from tests.rpc.support import ACTION_ID, refusal

ODD_TIMES: list[tuple[str, Any]] = [
    (
        "ListActions",
        pb.ListActionsRequest(
            filter=pb.ActionFilter(create_time_min=timestamp_pb2.Timestamp(seconds=s, nanos=n))
        ),
    )
    for s, n in [(2**62, 0), (-(2**62), 0), (253402300800, 0), (0, 2**31 - 1), (0, -1), (-62135596801, 999)]
]
ODD_SPANS: list[tuple[str, Any]] = [
    ("Execute", options(timeout=duration_pb2.Duration(seconds=s, nanos=n)))
    for s, n in [(0, 0), (-1, 0), (2**62, 0), (1, -1), (0, 2**31 - 1), (86401, 0)]
] + [
    (
        "WaitAction",
        pb.WaitActionRequest(action_id=ACTION_ID, timeout=duration_pb2.Duration(seconds=s, nanos=n)),
    )
    for s, n in [(-1, 0), (61, 0), (2**62, 2**31 - 1), (-(2**62), -(2**31))]
]


ODD_STARTS = [
    submission(delay=duration_pb2.Duration(seconds=s, nanos=n))
    for s, n in [(-1, 0), (0, -1), (31536001, 0), (2**62, 0), (-(2**62), -(2**31)), (1, -1), (0, 2**31 - 1)]
] + [
    submission(ready_time=timestamp_pb2.Timestamp(seconds=s, nanos=n))
    for s, n in [(2**62, 0), (-(2**62), 0), (253402300800, 0), (0, 2**31 - 1), (0, -1), (-62135596801, 999)]
]


@pytest.mark.parametrize("request_", ODD_STARTS)
async def test_a_start_of_nowhere_is_malformed_and_nothing_waits(
    server: Served, client: Client, request_: pb.SubmitRequest
) -> None:
    async with server.unharmed():
        refused = await refusal(client.call("Submit", request_))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)


async def test_an_item_that_breaks_a_bound_or_a_gate_is_refused_alone_and_nothing_waits(
    server: Served, client: Client
) -> None:
    wrong = [
        *ODD_STARTS,
        pb.SubmitRequest(),
        submission(queue=NUL),
        submission(queue="q" * 65),
        submission(priority=2**31 - 1),
        pb.SubmitRequest(invocation=invocation(capability=NUL).invocation),
        pb.SubmitRequest(invocation=invocation(input_json=NUL).invocation),
        pb.SubmitRequest(invocation=invocation(input_json='{"text":"' + "a" * 2**20 + '"}').invocation),
        pb.SubmitRequest(invocation=invocation(input_json="[" * 100_000).invocation),
        pb.SubmitRequest(invocation=invocation(capability="hostile.order").invocation),
        pb.SubmitRequest(invocation=options(labels={f"n{n}": "v" for n in range(17)}).invocation),
    ]
    async with server.unharmed():
        answer = await client.call("SubmitBatch", pb.SubmitBatchRequest(items=wrong))
    codes = [result.error.code for result in answer.results]
    assert [grpc.StatusCode.INVALID_ARGUMENT.value[0]] * len(wrong) == codes


@pytest.mark.parametrize("count", [0, 501, 20_000])
async def test_a_batch_of_no_size_is_malformed(server: Served, client: Client, count: int) -> None:
    async with server.unharmed():
        refused = await refusal(
            client.call("SubmitBatch", pb.SubmitBatchRequest(items=[submission(queue="hostile")] * count))
        )
    assert "MALFORMED_REQUEST" == refused.reason


@pytest.mark.parametrize(("rpc", "request_"), ODD_TIMES + ODD_SPANS)
async def test_times_and_spans_of_nowhere_are_refused_or_find_nothing(
    server: Served, client: Client, rpc: str, request_: Any
) -> None:
    async with server.unharmed():
        found, code = None, None
        try:
            found = await client.call(rpc, request_)
        except grpc.aio.AioRpcError as error:
            code = error.code()
        assert code is grpc.StatusCode.INVALID_ARGUMENT or isinstance(found, pb.ListActionsResponse)


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
async def test_a_page_of_no_size_is_malformed(server: Served, client: Client, size: int) -> None:
    async with server.unharmed():
        for rpc, request in (
            ("ListActions", pb.ListActionsRequest(page_size=size)),
            ("ListManifests", catalog.ListManifestsRequest(page_size=size)),
            ("ListCapabilities", catalog.ListCapabilitiesRequest(page_size=size)),
            ("ListDeadLetters", recovery.ListDeadLettersRequest(page_size=size)),
            ("ListAmbiguous", recovery.ListAmbiguousRequest(page_size=size)),
            ("ListReports", recovery.ListReportsRequest(page_size=size)),
            ("ListApprovals", approvals.ListApprovalsRequest(page_size=size)),
            ("ListDeliveries", operations_service_pb2.ListDeliveriesRequest(page_size=size)),
            ("Reconcile", recovery.ReconcileRequest(count_max=size)),
            ("ListPolicySets", policy.ListPolicySetsRequest(page_size=size)),
            (
                "Redrive",
                redrive(selection=recovery.EndedSelection(filter=dead_letters().filter, count_max=size)),
            ),
        ):
            assert "MALFORMED_REQUEST" == (await refusal(client.call(rpc, request))).reason


@pytest.mark.parametrize(
    ("capability", "input_json", "reason"),
    [
        ("hostile.echo", '{"text":"' + "a" * 2**20 + '"}', "PAYLOAD_TOO_LARGE"),
        ("hostile.any", '{"value":' + "[" * 100 + "]" * 100 + "}", "JSON_NOT_INTEROPERABLE"),
        ("hostile.order", '{"lines":[{"item":"a","amount":10}]}', "INPUT_SCHEMA_VIOLATION"),
        ("hostile.echo", '{"text":', "MALFORMED_JSON"),
    ],
)
async def test_what_may_not_be_executed_may_not_be_submitted(
    server: Served, client: Client, capability: str, input_json: str, reason: str
) -> None:
    request = submission(queue="hostile")
    request.invocation.capability, request.invocation.input_json = capability, input_json
    request.invocation.options.idempotency_key = "never"
    async with server.unharmed():
        assert reason == (await refusal(client.call("Submit", request))).reason


async def test_the_largest_labels_make_shorter_pages_that_default_clients_can_take(
    server: Served, client: Client
) -> None:
    labels = {f"{n:02}" + "🎉" * 61: "🎉" * 255 for n in range(16)}
    wanted = {(await client.call("Execute", options(labels=labels))).action.action_id for _ in range(220)}
    request = pb.ListActionsRequest(page_size=1000)
    request.filter.labels.update(labels)
    found: list[str] = []
    while not found or request.page_token:
        page = await client.call("ListActions", request)
        found += [action.action_id for action in page.actions]
        request.page_token = page.next_page_token
    assert (len(wanted), wanted) == (len(found), set(found))


async def test_too_many_labels_and_too_long_texts_are_named(server: Served, client: Client) -> None:
    many = options(labels={f"n{n}": "v" for n in range(17)})
    long = options(labels={"n" * 64: "v" * 256}, idempotency_key="k" * 257)
    async with server.unharmed():
        for request in (many, long):
            refused = await refusal(client.call("Execute", request))
            assert "MALFORMED_REQUEST" == refused.reason
            assert all(
                v.field.startswith("invocation.options") for v in refused.bad_requests[0].field_violations
            )
