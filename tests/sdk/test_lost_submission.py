"""Submissions and redrives whose reply is lost: nothing is stored twice, nothing more redriven than meant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from placet import errors
from placet.v1 import action_pb2, operations_service_pb2, recovery_service_pb2, runtime_service_pb2
from tests.sdk.conftest import Both
from tests.sdk.support import (
    ACTION_ID,
    Script,
    answer_with,
    break_off,
    found,
    outcome,
    refuse,
    serving,
    succeeded,
)

Connect = Callable[[str], Both]
Code = grpc.StatusCode
OTHER_ID = "0199b0c0-0000-7000-8000-000000000002"
READY = datetime(2030, 1, 31, 2, tzinfo=UTC)


def _waiting() -> action_pb2.Action:
    return action_pb2.Action(action_id=ACTION_ID, state=action_pb2.ACTION_STATE_QUEUED, queue="default")


def _stored(*, attached: bool = False) -> Any:
    return answer_with(runtime_service_pb2.SubmitResponse(action=_waiting(), attached=attached))


def _results(*changed: tuple[str, bool]) -> Any:
    results = [
        recovery_service_pb2.SelectionResult(
            action_id=action_id, changed=done, refused_rule="" if done else "effect_done"
        )
        for action_id, done in changed
    ]
    return answer_with(recovery_service_pb2.RedriveResponse(results=results))


async def test_a_lost_reply_is_asked_for_again_under_the_same_key(connect: Connect) -> None:
    script = Script(
        Submit=[break_off(Code.UNAVAILABLE), refuse(Code.UNAVAILABLE, "DRAINING"), _stored(attached=True)]
    )
    async with serving(script) as target:
        submitted = await connect(target).ask("submit", "reports.export", {"day": 1})
    assert (ACTION_ID, True, "default") == (submitted.action_id, submitted.attached, submitted.action.queue)
    requests = script.named("Submit")
    keys = {request.invocation.options.idempotency_key for request in requests}
    assert (3, 1, False) == (len(requests), len(keys), "" in keys)


async def test_a_reply_that_stays_lost_is_looked_up_and_any_state_is_stored(connect: Connect) -> None:
    script = Script(Submit=[break_off(Code.PERMISSION_DENIED)], GetAction=[found(_waiting())])
    async with serving(script) as target:
        submitted = await connect(target).ask("submit", "reports.export", {}, key="k1")
    assert (ACTION_ID, True) == (submitted.action_id, submitted.attached)
    assert "k1" == script.named("GetAction")[0].key.idempotency_key


async def test_a_submission_that_nobody_knows_of_is_not_said_to_be_stored(connect: Connect) -> None:
    missing = refuse(Code.NOT_FOUND, "NOT_FOUND", metadata={"kind": "action", "name": "k1"})
    script = Script(Submit=[break_off(Code.PERMISSION_DENIED)], GetAction=[missing])
    async with serving(script) as target:
        with pytest.raises(errors.TransportError) as caught:
            await connect(target).ask("submit", "reports.export", {}, key="k1")
    assert "No action is stored under key 'k1'" in caught.value.__notes__[0]


async def test_a_capability_that_takes_no_key_is_submitted_without(connect: Connect) -> None:
    refused = refuse(
        Code.INVALID_ARGUMENT, "CONTRACT_VIOLATION", metadata={"rule": "idempotency_key_unsupported"}
    )
    script = Script(Submit=[refused, _stored()])
    async with serving(script) as target:
        await connect(target).ask("submit", "reports.export", {})
    assert "" == script.named("Submit")[1].invocation.options.idempotency_key


async def test_a_known_key_that_is_refused_is_not_asked_again(connect: Connect) -> None:
    pending = outcome("PENDING", "WAIT_EXPIRED", advice="SAME_KEY")
    script = Script(Submit=[refuse(Code.ALREADY_EXISTS, "DUPLICATE_REFUSED", outcome=pending)])
    async with serving(script) as target:
        with pytest.raises(errors.ConflictError):
            await connect(target).ask("submit", "reports.export", {}, key="k1", on_duplicate="refuse")
    assert 1 == len(script.named("Submit"))


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"delay": 90}, 90.0),
        ({"delay": timedelta(minutes=2)}, 120.0),
        ({"ready_time": READY}, READY),
        ({}, None),
    ],
    ids=["seconds", "span", "time", "now"],
)
async def test_the_place_in_line_is_sent_as_it_was_said(
    connect: Connect, options: dict[str, Any], start: object
) -> None:
    script = Script(Submit=[_stored()])
    async with serving(script) as target:
        await connect(target).ask("submit", "reports.export", {}, queue="nightly", priority=0, **options)
    sent = script.named("Submit")[0]
    assert ("nightly", 0, True) == (sent.queue, sent.priority, sent.HasField("priority"))
    match sent.WhichOneof("start"):
        case "delay":
            assert start == sent.delay.ToTimedelta().total_seconds()
        case "ready_time":
            assert start == sent.ready_time.ToDatetime(UTC)
        case _:
            assert start is None


async def test_two_starts_are_one_too_many(connect: Connect) -> None:
    both = connect("127.0.0.1:1")
    with pytest.raises(ValueError, match="exclude each other"):
        await both.ask("submit", "reports.export", {}, delay=1, ready_time=READY)
    with pytest.raises(ValueError, match="has no time zone"):
        await both.ask("submit", "reports.export", {}, ready_time=datetime(2030, 1, 31))


async def test_waiting_goes_on_while_the_action_stands_in_line(connect: Connect) -> None:
    ended = runtime_service_pb2.WaitActionResponse(action=succeeded())
    standing = runtime_service_pb2.WaitActionResponse(action=_waiting())
    script = Script(WaitAction=[answer_with(standing), answer_with(ended)])
    async with serving(script) as target:
        action = await connect(target).ask("wait", ACTION_ID)
    assert action_pb2.ACTION_STATE_SUCCEEDED == action.state


async def test_a_filter_becomes_ids_before_anything_is_redriven(connect: Connect) -> None:
    looked, done = (
        _results((ACTION_ID, True), (OTHER_ID, False)),
        _results((ACTION_ID, True), (OTHER_ID, False)),
    )
    script = Script(Redrive=[looked, break_off(Code.UNAVAILABLE), done])
    async with serving(script) as target:
        results = await connect(target).ask(
            "redrive",
            queue="nightly",
            reason_of_death="RETRY_BUDGET",
            count_max=7,
            attempts=2,
            reason="back again",
        )
    assert [(ACTION_ID, True), (OTHER_ID, False)] == [(each.action_id, each.changed) for each in results]
    look, lost, again = script.named("Redrive")
    assert (True, "nightly", 7) == (look.validate_only, look.selection.filter.queue, look.selection.count_max)
    assert lost == again
    assert ([ACTION_ID, OTHER_ID], False) == (again.selection.action_ids, again.selection.HasField("filter"))
    assert (False, 2, "back again") == (again.validate_only, again.attempts, again.reason)
    assert again.idempotency_key


async def test_a_filter_that_matches_nothing_redrives_nothing(connect: Connect) -> None:
    script = Script(Redrive=[_results()])
    async with serving(script) as target:
        assert [] == await connect(target).ask("redrive", capabilities=["reports.export"])
    assert [True] == [request.validate_only for request in script.named("Redrive")]


async def test_all_the_ids_that_are_given_are_selected(connect: Connect) -> None:
    ids = [f"0199b0c0-0000-7000-8000-{number:012}" for number in range(150)]
    script = Script(Redrive=[_results()])
    async with serving(script) as target:
        await connect(target).ask("redrive", ids, validate_only=True)
    assert (150, ids) == (
        script.named("Redrive")[0].selection.count_max,
        script.named("Redrive")[0].selection.action_ids,
    )


@pytest.mark.parametrize(
    "which", [{}, {"action_ids": [ACTION_ID], "queue": "nightly"}, {"reason": "no filter"}]
)
async def test_everything_is_never_redriven_by_saying_nothing(
    connect: Connect, which: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="say which"):
        await connect("127.0.0.1:1").ask("redrive", **which)


async def test_queues_and_dead_letters_are_listed_for_whom_it_was_asked(connect: Connect) -> None:
    queue = operations_service_pb2.Queue(name="nightly", ready=3)
    pages = [
        recovery_service_pb2.ListDeadLettersResponse(actions=[succeeded()], next_page_token="more"),
        recovery_service_pb2.ListDeadLettersResponse(actions=[succeeded()]),
    ]
    server = operations_service_pb2.Server(server_id=ACTION_ID)
    servers = [
        operations_service_pb2.ListServersResponse(servers=[server], next_page_token="more"),
        operations_service_pb2.ListServersResponse(servers=[server]),
    ]
    script = Script(
        ListQueues=[answer_with(operations_service_pb2.ListQueuesResponse(queues=[queue]))],
        ListServers=[answer_with(page) for page in servers],
        ListDeadLetters=[answer_with(page) for page in pages],
    )
    async with serving(script) as target:
        both = connect(target)
        assert [queue] == list(await both.ask("queues", "-"))
        assert [server, server] == await both.pages("servers", page_size=1)
        found = await both.pages("dead_letters", queue="nightly", reason="QUEUE_DELAY", tenant="-")
    assert 2 == len(found)
    assert "-" == script.named("ListQueues")[0].tenant
    assert [(1, ""), (1, "more")] == [(r.page_size, r.page_token) for r in script.named("ListServers")]
    first, second = script.named("ListDeadLetters")
    assert ("-", "nightly", "QUEUE_DELAY") == (first.tenant, first.filter.queue, first.filter.reason)
    assert ("", "more") == (first.page_token, second.page_token)


async def test_deliveries_are_listed_as_asked_and_sent_again_under_one_key(connect: Connect) -> None:
    delivery = operations_service_pb2.Delivery(delivery_id=ACTION_ID, target="desk")
    pages = [
        operations_service_pb2.ListDeliveriesResponse(deliveries=[delivery], next_page_token="more"),
        operations_service_pb2.ListDeliveriesResponse(deliveries=[delivery]),
    ]
    answer = answer_with(operations_service_pb2.RedeliverCallbackResponse(delivery=delivery))
    script = Script(
        ListDeliveries=[answer_with(page) for page in pages],
        GetDelivery=[answer_with(operations_service_pb2.GetDeliveryResponse(delivery=delivery))],
        RedeliverCallback=[answer, answer],
    )
    async with serving(script) as target:
        both = connect(target)
        found = await both.pages("deliveries", states=["dead"], target="desk", tenant="-")
        assert [delivery, delivery] == found
        assert delivery == await both.ask("delivery", ACTION_ID)
        assert delivery == await both.ask("redeliver", ACTION_ID)
        assert delivery == await both.ask("redeliver", ACTION_ID, key="mine")
    first, second = script.named("ListDeliveries")
    assert ("desk", [operations_service_pb2.DELIVERY_STATE_DEAD]) == (
        first.filter.target,
        first.filter.states,
    )
    assert ("-", "", "more") == (first.tenant, first.page_token, second.page_token)
    fresh, given = script.named("RedeliverCallback")
    assert (36, "mine") == (len(fresh.idempotency_key), given.idempotency_key)
