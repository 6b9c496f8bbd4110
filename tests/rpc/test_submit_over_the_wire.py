"""Submit, and a redrive of what was given up, over the wire of a whole server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from placet import App, Failure
from placet.v1 import action_pb2, outcome_pb2, recovery_service_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, invocation, running
from tests.rpc.support import refusal
from tests.store.line import id_of, kill, open_boot

QUEUED = action_pb2.ACTION_STATE_QUEUED
# Long enough that no server begins it while a test looks.
LATER = Duration(seconds=600)


def shop() -> App:
    app = App("shop")

    @app.tool("shop.count", "idempotent")
    async def count(to: int) -> int:
        return to

    @app.tool("shop.fail", "idempotent")
    async def fail() -> None:
        raise Failure("sold_out", "None left.", effect="not_done")

    return app


@pytest.fixture
async def client(database: Database, tmp_path: Path) -> AsyncIterator[Client]:
    async with running(config_of(database.dsn, tmp_path), [shop()]) as running_client:
        yield running_client


def request(key: str, to: int = 3, **members: Any) -> pb.SubmitRequest:
    return pb.SubmitRequest(invocation=invocation("shop.count", {"to": to}, key), **members)


def submit(client: Client, submitted: pb.SubmitRequest) -> Any:
    return client.runtime.Submit(submitted, metadata=client.metadata, timeout=20)


async def get(client: Client, action_id: str) -> action_pb2.Action:
    asked = pb.GetActionRequest(action_id=action_id)
    return (await client.runtime.GetAction(asked, metadata=client.metadata)).action


async def test_submit_answers_with_the_waiting_action_and_names_it_in_trailers(client: Client) -> None:
    call = submit(client, request("k", queue="nightly", priority=0, delay=LATER))
    answer = await call
    action, trailers = answer.action, dict(await call.trailing_metadata())
    assert (QUEUED, 0, 1, "nightly", 0) == (
        action.state,
        action.attempt,
        action.generation,
        action.queue,
        action.priority,
    )
    assert outcome_pb2.OUTCOME_KIND_PENDING == action.outcome.kind
    assert 600_000 == action.ready_time.ToMilliseconds() - action.create_time.ToMilliseconds()
    assert ("", False) == (action.input_json, answer.attached)
    assert (action.action_id, "PENDING") == (trailers["placet-action-id"], trailers["placet-outcome"])
    stored = await get(client, action.action_id)
    assert '{"to":3}' == stored.input_json
    stored.input_json = ""
    assert stored == action


async def ended(client: Client, action_id: str) -> action_pb2.Action:
    asked = pb.WaitActionRequest(action_id=action_id)
    return (await client.runtime.WaitAction(asked, metadata=client.metadata, timeout=20)).action


async def test_what_was_submitted_is_run_by_the_server_and_a_resend_meets_its_end(client: Client) -> None:
    waiting = (await submit(client, request("k"))).action
    done = await ended(client, waiting.action_id)
    assert (action_pb2.ACTION_STATE_SUCCEEDED, "3", 1) == (done.state, done.output_json, done.attempt)
    again = await submit(client, request("k"))
    assert (True, action_pb2.ACTION_STATE_SUCCEEDED) == (again.attached, again.action.state)
    executed = await client.execute("shop.count", {"to": 3}, "k")
    assert (True, waiting.action_id) == (executed.attached, executed.action.action_id)


async def test_what_failed_with_nobody_waiting_is_a_dead_letter_until_it_is_redriven(client: Client) -> None:
    failing = pb.SubmitRequest(invocation=invocation("shop.fail", {}, "f"))
    action_id = (await submit(client, failing)).action.action_id
    for generation in (1, 2):
        failed = await ended(client, action_id)
        assert (action_pb2.ACTION_STATE_FAILED, "sold_out", generation) == (
            failed.state,
            failed.outcome.failure_code,
            failed.generation,
        )
        assert [action_id] == await dead_letters(client)
        if generation == 1:
            selection = recovery_service_pb2.EndedSelection(action_ids=[action_id])
            (redriven,) = (await redrive(client, selection=selection)).results
            assert redriven.changed
    refused = await refusal(client.execute("shop.fail", {}, "f"))
    assert "HANDLER_FAILED" == refused.reason
    assert action_id == refused.trailers["placet-action-id"]


async def test_what_is_not_said_is_the_default(client: Client) -> None:
    action = (await submit(client, request("k", delay=LATER))).action
    assert ("default", 5) == (action.queue, action.priority)
    at = request("at")
    at.ready_time.FromSeconds(4_000_000_000)
    assert 4_000_000_000 == (await submit(client, at)).action.ready_time.ToSeconds()


async def test_the_same_key_is_the_same_action_and_other_input_a_conflict(client: Client) -> None:
    first = await submit(client, request("k", delay=LATER))
    again = await submit(client, request("k", queue="other", priority=1))
    assert (True, first.action) == (again.attached, again.action)
    refused = await refusal(submit(client, request("k", to=4)))
    assert (grpc.StatusCode.ALREADY_EXISTS, "IDEMPOTENCY_CONFLICT") == (refused.code, refused.reason)
    unwanted = request("k")
    unwanted.invocation.options.on_duplicate = action_pb2.ON_DUPLICATE_REFUSE
    assert "DUPLICATE_REFUSED" == (await refusal(submit(client, unwanted))).reason


async def test_submit_of_what_was_executed_tells_how_it_ended(client: Client) -> None:
    done = await client.execute("shop.count", {"to": 3}, "k")
    call = submit(client, request("k"))
    answer = await call
    assert (True, done.action.action_id) == (answer.attached, answer.action.action_id)
    assert action_pb2.ACTION_STATE_SUCCEEDED == answer.action.state
    assert "SUCCEEDED" == dict(await call.trailing_metadata())["placet-outcome"]


async def test_the_gates_refuse_as_for_execute_and_nothing_is_stored(client: Client) -> None:
    unkeyed, unknown, wrong = request(""), request("k"), request("k")
    unknown.invocation.capability = "shop.none"
    wrong.invocation.input_json = '{"to": "three"}'
    for submitted, reason in (
        (unkeyed, "IDEMPOTENCY_KEY_REQUIRED"),
        (unknown, "CAPABILITY_NOT_FOUND"),
        (wrong, "INPUT_SCHEMA_VIOLATION"),
    ):
        refused = await refusal(submit(client, submitted))
        assert reason == refused.reason
        assert [outcome_pb2.OUTCOME_KIND_REFUSED] == [told.kind for told in refused.outcomes]
    listed = await client.runtime.ListActions(pb.ListActionsRequest(), metadata=client.metadata)
    assert [] == list(listed.actions)


async def test_a_server_that_leaves_takes_nothing_more_in(client: Client) -> None:
    client.server.kernel.start_draining()
    refused = await refusal(submit(client, request("k")))
    assert (grpc.StatusCode.UNAVAILABLE, "DRAINING") == (refused.code, refused.reason)
    listed = await client.runtime.ListActions(pb.ListActionsRequest(), metadata=client.metadata)
    assert [] == list(listed.actions)


async def test_a_waiting_action_is_cancelled_at_once_and_its_watcher_sees_the_end(client: Client) -> None:
    action = (await submit(client, request("k", queue="nightly", delay=LATER))).action
    cancel = pb.CancelActionRequest(action_id=action.action_id, reason="no more")
    events = []
    async with asyncio.timeout(10):
        async for response in watch(client, action.action_id):
            events.append(response.event)
            if len(events) == 1:
                await client.runtime.CancelAction(cancel, metadata=client.metadata)
    admitted = events[0].admitted
    assert ("nightly", action.ready_time) == (admitted.queue, admitted.ready_time)
    assert ["cancel_requested", "settled"] == [event.WhichOneof("event") for event in events[1:]]
    assert action_pb2.ACTION_STATE_CANCELLED == (await get(client, action.action_id)).state


def watch(client: Client, action_id: str, after_cursor: str = "") -> Any:
    asked = pb.WatchActionRequest(action_id=action_id, after_cursor=after_cursor)
    return client.runtime.WatchAction(asked, metadata=client.metadata)


def redrive(client: Client, **members: Any) -> Any:
    asked = recovery_service_pb2.RedriveRequest(**members)
    return client.recovery.Redrive(asked, metadata=client.metadata, timeout=20)


async def dead_letters(client: Client) -> list[str]:
    asked = recovery_service_pb2.ListDeadLettersRequest()
    answer = await client.recovery.ListDeadLetters(asked, metadata=client.metadata)
    return [action.action_id for action in answer.actions]


async def given_up(client: Client, database: Database, *numbers: int) -> list[str]:
    """Actions of the caller's own tenant that no server here serves, given up."""
    connection, boot = await open_boot(database)
    await kill(connection, boot, *numbers)
    for table in ("actions", "events", "dead_letters"):
        await connection.execute(f"update {table} set tenant = 'dev'")
    connection.terminate()
    assert sorted(map(id_of, numbers), reverse=True) == await dead_letters(client)
    return [id_of(number) for number in numbers]


async def test_a_dead_letter_is_looked_at_then_redriven_once_for_all_resends(
    client: Client, database: Database
) -> None:
    (action_id,) = await given_up(client, database, 1)
    cursor = (await get(client, action_id)).cursor
    selection = recovery_service_pb2.EndedSelection(action_ids=[action_id])
    (looked,) = (await redrive(client, selection=selection, validate_only=True)).results
    assert (action_id, action_pb2.ACTION_STATE_EXHAUSTED, True, "") == (
        looked.action_id,
        looked.state,
        looked.changed,
        looked.refused_rule,
    )
    assert [action_id] == await dead_letters(client)
    for _ in range(2):
        again = {"attempts": 2, "reason": "stock is back", "idempotency_key": "r"}
        (done,) = (await redrive(client, selection=selection, **again)).results
        assert (QUEUED, True, "") == (done.state, done.changed, done.refused_rule)
    stored = await get(client, action_id)
    assert (2, stored.attempt + 2, "slow") == (stored.generation, stored.attempts_max, stored.queue)
    assert [] == await dead_letters(client)
    watching = watch(client, action_id, cursor)
    told = (await watching.read()).event.redriven
    watching.cancel()
    assert (2, 2, "developer", "stock is back") == (
        told.generation,
        told.attempts,
        told.requester,
        told.reason,
    )


async def test_a_filter_redrives_the_oldest_that_match_as_often_as_their_contract_allows(
    client: Client, database: Database
) -> None:
    ids = await given_up(client, database, 1, 2, 3)
    matching = recovery_service_pb2.DeadLetterFilter(queue="slow")
    selection = recovery_service_pb2.EndedSelection(filter=matching, count_max=1)
    assert [ids[0]] == [r.action_id for r in (await redrive(client, selection=selection)).results]
    everything = recovery_service_pb2.EndedSelection(filter=recovery_service_pb2.DeadLetterFilter())
    assert ids[1:] == [r.action_id for r in (await redrive(client, selection=everything)).results]
    stored = await get(client, ids[0])
    assert (2, 4) == (stored.generation, stored.attempts_max)


async def test_what_may_not_be_tried_again_is_told_by_rule(client: Client) -> None:
    done = (await client.execute("shop.count", {"to": 3}, "done")).action
    waiting = (await submit(client, request("waiting", delay=LATER))).action
    nowhere = id_of(9)
    selection = recovery_service_pb2.EndedSelection(action_ids=[done.action_id, nowhere, waiting.action_id])
    results = (await redrive(client, selection=selection)).results
    assert [
        (done.action_id, action_pb2.ACTION_STATE_SUCCEEDED, False, "effect_done"),
        (nowhere, action_pb2.ACTION_STATE_UNSPECIFIED, False, "not_found"),
        (waiting.action_id, QUEUED, False, "not_terminal"),
    ] == [(r.action_id, r.state, r.changed, r.refused_rule) for r in results]
