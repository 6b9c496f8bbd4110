"""Every RPC against the whole server and a real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from placet import App, Context, Failure
from placet.v1 import action_pb2, capability_pb2, outcome_pb2
from placet.v1 import catalog_service_pb2 as cb
from placet.v1 import runtime_service_pb2 as pb
from placet_server.rpc.permission import SCOPES
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, invocation, running
from tests.rpc.support import ACTION_ID, refusal


def shop() -> App:
    app = App("shop")

    @app.tool("math.add", "read")
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool("orders.refund", "idempotent")
    async def refund(order: str) -> str:
        if order == "declined":
            raise Failure("card_declined", "No.", effect="not_done")
        return f"refunded {order}"

    @app.tool("orders.wire", "unsafe")
    async def wire(order: str) -> str:
        raise RuntimeError("secret")

    @app.tool("story.tell", "read", streaming=True)
    async def tell(context: Context, words: list[str]) -> int:
        for word in words:
            await context.chunk(word)
        return len(words)

    @app.tool("slow.wait", "read")
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    return app


@pytest.fixture
async def client(database: Database, tmp_path: Path) -> AsyncIterator[Client]:
    async with running(config_of(database.dsn, tmp_path), [shop()]) as running_client:
        yield running_client


async def test_execute_answers_with_the_action_and_names_it_in_trailers(client: Client) -> None:
    call = client.execute("orders.refund", {"order": "7"}, "k")
    response = await call
    assert (action_pb2.ACTION_STATE_SUCCEEDED, '"refunded 7"', "") == (
        response.action.state,
        response.action.output_json,
        response.action.input_json,
    )
    trailers = dict(await call.trailing_metadata())
    assert (response.action.action_id, "SUCCEEDED") == (
        trailers["placet-action-id"],
        trailers["placet-outcome"],
    )
    again = await client.execute("orders.refund", {"order": "7"}, "k")
    assert (True, response.action.action_id) == (again.attached, again.action.action_id)


async def test_each_ending_has_its_own_status_and_reason(client: Client) -> None:
    """X3: distinct endings stay distinct; X4: each with exactly one ErrorInfo."""
    refund, wire = "orders.refund", "orders.wire"
    await client.execute(refund, {"order": "7"}, "k")
    calls: dict[str, Any] = {
        "HANDLER_FAILED": (client.execute(refund, {"order": "declined"}, "d"), grpc.StatusCode.ABORTED),
        "EFFECT_AMBIGUOUS": (client.execute(wire, {"order": "7"}, "w"), grpc.StatusCode.UNKNOWN),
        "IDEMPOTENCY_CONFLICT": (client.execute(refund, {"order": "8"}, "k"), grpc.StatusCode.ALREADY_EXISTS),
        "IDEMPOTENCY_KEY_REQUIRED": (
            client.execute(refund, {"order": "7"}),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        "INPUT_SCHEMA_VIOLATION": (client.execute(refund, {"x": 1}, "x"), grpc.StatusCode.INVALID_ARGUMENT),
        "CAPABILITY_NOT_FOUND": (client.execute("nope", {}, "x"), grpc.StatusCode.NOT_FOUND),
    }
    for reason, (call, code) in calls.items():
        refused = await refusal(call)
        assert (code, reason) == (refused.code, refused.reason)


async def test_a_failure_tells_its_outcome(client: Client) -> None:
    refused = await refusal(client.execute("orders.refund", {"order": "declined"}, "d"))
    (outcome,) = refused.outcomes
    assert (outcome_pb2.OUTCOME_KIND_FAILED, "card_declined", outcome_pb2.EFFECT_STATE_NOT_DONE) == (
        outcome.kind,
        outcome.failure_code,
        outcome.effect,
    )
    assert outcome.action_id == refused.trailers["placet-action-id"]
    assert "secret" not in (await refusal(client.execute("orders.wire", {"order": "7"}, "w"))).message


async def test_a_deadline_of_the_caller_gets_a_typed_answer_in_time(client: Client) -> None:
    refused = await refusal(client.execute("slow.wait", {}, timeout=2.5))
    assert grpc.StatusCode.DEADLINE_EXCEEDED == refused.code
    assert refused.reason in ("DEADLINE_EXCEEDED", "WAIT_EXPIRED")


async def test_a_stream_tells_every_event_and_ends_with_the_status(client: Client) -> None:
    request = pb.ExecuteStreamRequest(invocation=invocation("story.tell", {"words": ["a", "b"]}))
    call = client.runtime.ExecuteStream(request, metadata=client.metadata)
    events = [response.event async for response in call]
    kinds = [event.WhichOneof("event") for event in events]
    assert ["admitted", "chunk", "chunk", "settled"] == kinds
    assert ["a", "b"] == [event.chunk.text for event in events if event.WhichOneof("event") == "chunk"]
    assert "2" == events[-1].settled.output_json
    assert events[0].action_id == dict(await call.initial_metadata())["placet-action-id"]

    watch = pb.WatchActionRequest(action_id=events[0].action_id, after_cursor=events[1].cursor)
    rest = [r.event async for r in client.runtime.WatchAction(watch, metadata=client.metadata)]
    assert [("b", True), ("", True)] == [(event.chunk.text, event.replayed) for event in rest]


async def test_a_failing_stream_ends_with_settled_and_then_the_status(client: Client) -> None:
    request = pb.ExecuteStreamRequest(invocation=invocation("orders.refund", {"order": "declined"}, "s"))
    kinds = []

    async def drain() -> None:
        async for response in client.runtime.ExecuteStream(request, metadata=client.metadata):
            kinds.append(response.event.WhichOneof("event"))

    refused = await refusal(drain())
    assert ("HANDLER_FAILED", "settled") == (refused.reason, kinds[-1])


async def test_an_action_is_found_by_id_and_by_key_and_with_or_without_payload(client: Client) -> None:
    done = (await client.execute("orders.refund", {"order": "7"}, "k")).action
    key = pb.KeyRef(capability="orders.refund", idempotency_key="k")
    for request in (pb.GetActionRequest(action_id=done.action_id), pb.GetActionRequest(key=key)):
        full = (await client.runtime.GetAction(request, metadata=client.metadata)).action
        assert (done.action_id, '{"order":"7"}', '"refunded 7"') == (
            full.action_id,
            full.input_json,
            full.output_json,
        )
        request.view = action_pb2.ACTION_VIEW_BASIC
        basic = (await client.runtime.GetAction(request, metadata=client.metadata)).action
        assert (done.action_id, "", "") == (basic.action_id, basic.input_json, basic.output_json)
    unknown = pb.GetActionRequest(key=pb.KeyRef(capability="orders.refund", idempotency_key="nope"))
    assert "NOT_FOUND" == (await refusal(client.runtime.GetAction(unknown, metadata=client.metadata))).reason


async def test_pages_are_whole_and_their_tokens_fit_no_other_request(client: Client) -> None:
    made = [(await client.execute("math.add", {"a": n, "b": 1})).action.action_id for n in range(5)]
    listed, request = list[str](), pb.ListActionsRequest(page_size=2)
    while True:
        page = await client.runtime.ListActions(request, metadata=client.metadata)
        listed += [action.action_id for action in page.actions]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert made[::-1] == listed
    other = pb.ListActionsRequest(page_token=request.page_token, filter=pb.ActionFilter(requester="x"))
    for wrong in (other, pb.ListActionsRequest(page_token="garbage!"), pb.ListActionsRequest(page_token="é")):
        refused = await refusal(client.runtime.ListActions(wrong, metadata=client.metadata))
        assert ("MALFORMED_REQUEST", "page_token") == (
            refused.reason,
            refused.bad_requests[0].field_violations[0].field,
        )
    resized = pb.ListActionsRequest(page_token=request.page_token, page_size=100)
    await client.runtime.ListActions(resized, metadata=client.metadata)


async def test_a_running_action_is_waited_for_cancelled_and_then_known_as_cancelled(client: Client) -> None:
    call = client.execute("slow.wait", {})
    async with asyncio.timeout(10):
        while not (
            actions := (
                await client.runtime.ListActions(pb.ListActionsRequest(), metadata=client.metadata)
            ).actions
        ):
            pass
    action_id = actions[0].action_id
    wait = pb.WaitActionRequest(action_id=action_id)
    wait.timeout.FromMilliseconds(50)
    waited = await client.runtime.WaitAction(wait, metadata=client.metadata)
    assert action_pb2.ACTION_STATE_RUNNING == waited.action.state
    await client.runtime.CancelAction(
        pb.CancelActionRequest(action_id=action_id, reason="enough"), metadata=client.metadata
    )
    refused = await refusal(call)
    assert (grpc.StatusCode.CANCELLED, "CANCELLED_BY_CALLER") == (refused.code, refused.reason)
    ended = await client.runtime.WaitAction(
        pb.WaitActionRequest(action_id=action_id), metadata=client.metadata
    )
    assert action_pb2.ACTION_STATE_CANCELLED == ended.action.state


@pytest.mark.parametrize("name", ["GetAction", "WaitAction", "WatchAction", "CancelAction"])
async def test_an_unknown_action_is_not_found(client: Client, name: str) -> None:
    request = getattr(pb, f"{name}Request")(action_id=ACTION_ID)
    call = getattr(client.runtime, name)(request, metadata=client.metadata)

    async def answered() -> None:
        if name == "WatchAction":
            async for _ in call:
                pass
        else:
            await call

    refused = await refusal(answered())
    assert (grpc.StatusCode.NOT_FOUND, "NOT_FOUND") == (refused.code, refused.reason)


async def test_the_server_says_who_calls_and_what_it_is(client: Client) -> None:
    caller = await client.runtime.GetCaller(pb.GetCallerRequest(), metadata=client.metadata)
    assert ("dev", "developer", "dev_token", len(SCOPES)) == (
        caller.caller.tenant,
        caller.caller.subject,
        caller.identity_source,
        len(caller.permitted_rpcs),
    )
    info = await client.runtime.GetServerInfo(pb.GetServerInfoRequest(), metadata=client.metadata)
    assert (action_pb2.DURABILITY_CLASS_EPHEMERAL, client.server.kernel.boot_id) == (
        info.durability,
        info.boot_id,
    )
    assert info.store_time.seconds > 0


async def test_a_manifest_is_read_back_as_it_was_declared(client: Client) -> None:
    got = await client.catalog.GetManifest(cb.GetManifestRequest(name="shop"), metadata=client.metadata)
    declared = {capability.name: capability for capability in shop().manifest().capabilities}
    assert sorted(declared) == sorted(capability.name for capability in got.manifest.capabilities)
    listed = await client.catalog.ListManifests(cb.ListManifestsRequest(), metadata=client.metadata)
    assert [("shop", 5, True, got.digest)] == [
        (m.name, m.capability_count, m.local, m.digest) for m in listed.manifests if m.name != "placet"
    ]
    one = await client.catalog.GetCapability(
        cb.GetCapabilityRequest(name="orders.refund"), metadata=client.metadata
    )
    assert declared["orders.refund"].input_schema_json == one.capability.input_schema_json
    assert (True, True, "shop") == (one.capability.served, one.capability.current, one.capability.manifest)


async def test_capabilities_are_listed_page_by_page(client: Client) -> None:
    names, request = list[str](), cb.ListCapabilitiesRequest(page_size=2)
    while True:
        page = await client.catalog.ListCapabilities(request, metadata=client.metadata)
        names += [capability.name for capability in page.capabilities]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    offered = ["human.input", "math.add", "orders.refund", "orders.wire", "placet.agent"]
    assert [*offered, "slow.wait", "story.tell"] == names


async def test_a_manifest_with_problems_is_refused_whole_and_explained(client: Client) -> None:
    manifest = shop().manifest()
    manifest.name = "mine"
    for capability in manifest.capabilities:
        capability.name = f"mine.{capability.name}"
    manifest.capabilities[0].input_schema_json = '{"$ref": "file:///etc/passwd"}'
    request = cb.AdmitManifestRequest(manifest=manifest, validate_only=True)
    looked = await client.catalog.AdmitManifest(request, metadata=client.metadata)
    assert any(not problem.warning for problem in looked.problems)
    request.validate_only = False
    refused = await refusal(client.catalog.AdmitManifest(request, metadata=client.metadata))
    assert ("MANIFEST_REFUSED", True) == (refused.reason, bool(refused.bad_requests[0].field_violations))
    request.manifest.capabilities[0].contract.effect = capability_pb2.EFFECT_CLASS_UNSPECIFIED
    refused = await refusal(client.catalog.AdmitManifest(request, metadata=client.metadata))
    assert ("MALFORMED_REQUEST", "manifest.capabilities[0].contract.effect") == (
        refused.reason,
        refused.bad_requests[0].field_violations[0].field,
    )
