"""SubmitBatch over the wire of a whole server: OK, and each item's result as Submit would have told it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from placet import App
from placet.v1 import action_pb2, outcome_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, invocation, running
from tests.rpc.support import refusal

QUEUED, SUCCEEDED = action_pb2.ACTION_STATE_QUEUED, action_pb2.ACTION_STATE_SUCCEEDED
LATER = Duration(seconds=600)
NUL = "a\x00b"


@pytest.fixture
async def client(database: Database, tmp_path: Path) -> AsyncIterator[Client]:
    app = App("shop")

    @app.tool("shop.count", "idempotent")
    async def count(to: int) -> int:
        return to

    async with running(config_of(database.dsn, tmp_path), [app]) as running_client:
        yield running_client


def item(key: str = "", to: Any = 3, **members: Any) -> pb.SubmitRequest:
    return pb.SubmitRequest(invocation=invocation("shop.count", {"to": to}, key), **members)


async def batch(client: Client, *items: pb.SubmitRequest) -> list[pb.SubmitBatchResult]:
    request = pb.SubmitBatchRequest(items=items)
    return list((await client.runtime.SubmitBatch(request, metadata=client.metadata, timeout=30)).results)


def reason(status: status_pb2.Status) -> str:
    told = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(told)
    assert "placet.dev" == told.domain
    return str(told.reason)


async def test_results_are_in_the_order_of_the_items_and_lead_to_their_actions(client: Client) -> None:
    first, refused, attached, late = await batch(
        client, item("a"), item("b", to="x"), item("a"), item("c", delay=LATER)
    )
    assert "INPUT_SCHEMA_VIOLATION" == reason(refused.error)
    assert (first.submitted.action_id, False, True) == (
        attached.submitted.action_id,
        first.submitted.attached,
        attached.submitted.attached,
    )
    assert (QUEUED, QUEUED) == (first.submitted.state, late.submitted.state)
    watched = pb.WatchActionRequest(action_id=first.submitted.action_id, after_cursor=first.submitted.cursor)
    events = [
        answer.event
        async for answer in client.runtime.WatchAction(watched, metadata=client.metadata, timeout=30)
    ]
    assert ([2, 3], "settled") == ([e.sequence for e in events if e.sequence], events[-1].WhichOneof("event"))
    (known,) = await batch(client, item("a"))
    assert (SUCCEEDED, True) == (known.submitted.state, known.submitted.attached)


async def test_an_error_is_what_submit_would_have_said(client: Client) -> None:
    wrong = [
        item("k", to="x"),
        item("k\n"),
        item("k", queue="Nightly"),
        item("k", priority=10),
        item("k", delay=Duration(seconds=-1)),
        pb.SubmitRequest(),
        pb.SubmitRequest(invocation=invocation("shop.none", {})),
        pb.SubmitRequest(invocation=invocation(NUL, {})),
    ]
    *results, stored = await batch(client, *wrong, item("k"))
    assert stored.HasField("submitted")
    for request, result in zip(wrong, results, strict=True):
        alone = await refusal(client.runtime.Submit(request, metadata=client.metadata))
        assert alone.status == result.error
        assert (alone.code.value[0], alone.message) == (result.error.code, result.error.message)


async def test_a_refused_item_tells_that_nothing_was_stored(client: Client) -> None:
    (result,) = await batch(client, item(to="x"))
    outcome = outcome_pb2.Outcome()
    assert any(detail.Unpack(outcome) for detail in result.error.details)
    assert outcome_pb2.OUTCOME_KIND_REFUSED == outcome.kind


@pytest.mark.parametrize("count", [0, 501])
async def test_a_batch_of_no_size_is_refused_whole(client: Client, count: int) -> None:
    request = pb.SubmitBatchRequest(items=[item("k")] * count)
    refused = await refusal(client.runtime.SubmitBatch(request, metadata=client.metadata))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)
    assert ["items"] == [violation.field for violation in refused.bad_requests[0].field_violations]


async def test_the_largest_batch_of_refusals_fits_into_what_default_clients_take(client: Client) -> None:
    items = [item("k" + "é" * 250, queue="Q" * 100, priority=99, to="x") for _ in range(500)]
    assert 500 == len([result for result in await batch(client, *items) if result.HasField("error")])
