"""What waits and what was given up, as operators see it: their own tenant's, and others' only by a scope of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from placet.v1 import action_pb2, error_reason_pb2, operations_service_pb2, recovery_service_pb2
from placet_server.model.caller import Caller
from placet_server.model.errors import ScopeMissing
from placet_server.rpc.permission import tenant_of
from placet_server.store import callback as deliveries
from placet_server.store.connection import connect
from tests.core.receiver import callback
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, running
from tests.rpc.support import refusal
from tests.store.line import id_of, kill, open_boot, row, submit

QUEUES = operations_service_pb2.ListQueuesRequest
DEAD = recovery_service_pb2.ListDeadLettersRequest
FILTER = recovery_service_pb2.DeadLetterFilter


@pytest.fixture
async def client(database: Database, tmp_path: Path) -> AsyncIterator[Client]:
    """No app: what waits here waits for other servers. Its token is of tenant `dev`, with every scope."""
    async with running(config_of(database.dsn, tmp_path)) as running_client:
        connection, boot = await open_boot(database)
        await kill(connection, boot, 1, 2, 3, 4, 5)
        await submit(connection, boot, row(6), row(7, delay_seconds=60.0), row(8, queue="slow"))
        await submit(connection, boot, row(9, tenant="dev"))
        connection.terminate()
        yield running_client


async def queues(client: Client, **request: Any) -> dict[str, tuple[int, int, bool]]:
    answer = await client.operations.ListQueues(QUEUES(**request), metadata=client.metadata)
    # Nobody serves what is ready.
    assert [q.ready for q in answer.queues] == [q.unroutable for q in answer.queues]
    return {q.name: (q.ready, q.delayed, q.HasField("oldest")) for q in answer.queues}


async def dead(client: Client, request: recovery_service_pb2.ListDeadLettersRequest) -> list[int]:
    """The numbers on all pages."""
    found: list[int] = []
    while True:
        page = await client.recovery.ListDeadLetters(request, metadata=client.metadata)
        found += [int(action.action_id[-12:]) for action in page.actions]
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found


async def test_queues_are_told_by_depth_and_age(client: Client) -> None:
    assert {"default": (1, 0, True)} == await queues(client)
    assert {"default": (1, 1, True), "slow": (1, 0, True)} == await queues(client, tenant="acme")
    assert {"default": (2, 1, True), "slow": (1, 0, True)} == await queues(client, tenant="-")
    assert {} == await queues(client, tenant="nobody")


async def test_queues_are_paused_and_resumed_for_a_tenant_or_for_all(client: Client) -> None:
    asked = operations_service_pb2.PauseQueueRequest(tenant="acme", queue="slow", reason="the bank is down")
    paused = (await client.operations.PauseQueue(asked, metadata=client.metadata)).queue
    assert ("slow", 1, True, "the bank is down") == (
        paused.name,
        paused.ready,
        paused.paused,
        paused.paused_reason,
    )
    assert paused.HasField("pause_time")
    listed = await client.operations.ListQueues(QUEUES(tenant="acme"), metadata=client.metadata)
    assert {"default": False, "slow": True} == {queue.name: queue.paused for queue in listed.queues}
    asked = operations_service_pb2.PauseQueueRequest(tenant="-", queue="empty")
    paused = (await client.operations.PauseQueue(asked, metadata=client.metadata)).queue
    assert ("empty", 0, True, "") == (paused.name, paused.ready, paused.paused, paused.paused_reason)
    assert {"default": (1, 0, True), "empty": (0, 0, False)} == await queues(client)
    for tenant, queue in (("acme", "slow"), ("-", "empty"), ("-", "empty")):
        again = operations_service_pb2.ResumeQueueRequest(tenant=tenant, queue=queue)
        resumed = (await client.operations.ResumeQueue(again, metadata=client.metadata)).queue
        assert (queue, False, False) == (resumed.name, resumed.paused, resumed.HasField("pause_time"))
    assert {"default": (1, 0, True)} == await queues(client)


async def test_servers_are_told_page_by_page(client: Client) -> None:
    servers: list[operations_service_pb2.Server] = []
    asked = operations_service_pb2.ListServersRequest(page_size=1)
    while asked.page_token or not servers:
        page = await client.operations.ListServers(asked, metadata=client.metadata)
        servers += page.servers
        asked.page_token = page.next_page_token
    whole = await client.operations.ListServers(
        operations_service_pb2.ListServersRequest(), metadata=client.metadata
    )
    assert 2 == len(servers)
    assert servers == list(whole.servers)
    (own,) = [server for server in whole.servers if server.answering]
    assert client.server.kernel.boot_id == own.server_id
    assert (os.getpid(), False, False, ["human.input@1"]) == (
        own.pid,
        own.draining,
        own.silent,
        list(own.serves),
    )
    assert 0 < own.start_time.ToMicroseconds() <= own.heartbeat_time.ToMicroseconds()
    # What else is at work here is the tests' own, which says nothing of what it serves.
    assert [0] == [server.queue_slots for server in whole.servers if not server.answering]


async def test_dead_letters_come_newest_first_and_as_the_filter_says(client: Client) -> None:
    assert [] == await dead(client, DEAD())
    for tenant in ("-", "acme"):
        assert [5, 4, 3, 2, 1] == await dead(client, DEAD(tenant=tenant))
        assert [5, 4, 3, 2, 1] == await dead(client, DEAD(tenant=tenant, page_size=2))
    assert [5, 3, 1] == await dead(client, DEAD(tenant="-", filter=FILTER(queue="slow")))
    assert [] == await dead(client, DEAD(tenant="-", filter=FILTER(reason="QUEUE_DELAY")))
    both = FILTER(capabilities=["shop.pack", "shop.none"], reason="RETRY_BUDGET")
    assert [5, 4, 3, 2, 1] == await dead(client, DEAD(tenant="-", filter=both, page_size=3))


async def test_a_dead_letter_says_how_it_ended_without_its_payload(client: Client) -> None:
    page = await client.recovery.ListDeadLetters(DEAD(tenant="-", page_size=1), metadata=client.metadata)
    (action,) = page.actions
    assert (id_of(5), "acme", "slow", "") == (
        action.action_id,
        action.requester.tenant,
        action.queue,
        action.input_json,
    )
    assert (action_pb2.ACTION_STATE_EXHAUSTED, 5, 1) == (action.state, action.priority, action.generation)
    assert error_reason_pb2.ERROR_REASON_RETRY_BUDGET == action.outcome.reason


async def test_a_page_of_dead_letters_belongs_to_its_request(client: Client) -> None:
    page = await client.recovery.ListDeadLetters(DEAD(tenant="-", page_size=1), metadata=client.metadata)
    token = page.next_page_token
    for request in (
        DEAD(page_token=token),
        DEAD(tenant="acme", page_token=token),
        DEAD(tenant="-", page_token=token, filter=FILTER(queue="slow")),
        DEAD(tenant="-", page_token=token[:-1]),
    ):
        refused = await refusal(client.recovery.ListDeadLetters(request, metadata=client.metadata))
        assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)


async def test_deliveries_are_shown_beyond_the_tenant_without_what_they_tell(
    client: Client, database: Database
) -> None:
    connection = await connect(database.dsn)
    told = [callback(number, tenant=tenant) for tenant in ("acme", "dev") for number in range(2)]
    for one in told:
        await deliveries.insert(connection, one, ["desk"], attempts_max=3, now=None)
    await connection.close()
    asked = operations_service_pb2.ListDeliveriesRequest(tenant="-", page_size=3)
    found: list[operations_service_pb2.Delivery] = []
    while asked.page_token or not found:
        page = await client.operations.ListDeliveries(asked, metadata=client.metadata)
        found += page.deliveries
        asked.page_token = page.next_page_token
    assert [one.delivery_id("desk") for one in reversed(told)] == [each.delivery_id for each in found]
    assert [("", 3)] * 4 == [(each.data_json, each.attempts_max) for each in found]
    shown = {}
    for each in found:
        get = operations_service_pb2.GetDeliveryRequest(tenant=each.tenant, delivery_id=each.delivery_id)
        answer = await client.operations.GetDelivery(get, metadata=client.metadata)
        shown[each.tenant] = answer.delivery.data_json
    assert {"acme": "", "dev": '{"approval_id":"0","title":"Pay"}'} == shown
    theirs, own = found[-1].delivery_id, found[0].delivery_id
    again = operations_service_pb2.RedeliverCallbackRequest(delivery_id=theirs)
    refused = await refusal(client.operations.RedeliverCallback(again, metadata=client.metadata))
    assert "NOT_FOUND" == refused.reason
    again = operations_service_pb2.RedeliverCallbackRequest(delivery_id=own, idempotency_key="k")
    for _ in range(2):
        sent = (await client.operations.RedeliverCallback(again, metadata=client.metadata)).delivery
        assert (2, 12, operations_service_pb2.DELIVERY_STATE_PENDING) == (
            sent.generation,
            sent.attempts_max,
            sent.state,
        )


@pytest.mark.parametrize("named", ["-", "globex", "acme2"])
def test_only_operators_look_beyond_their_tenant(named: str) -> None:
    scopes = frozenset({"operations.read", "recovery.read", "recovery.write"})
    alice = Caller(tenant="acme", subject="alice", scopes=scopes)
    assert ["acme", "acme"] == [tenant_of(alice, own) for own in ("", "acme")]
    with pytest.raises(ScopeMissing, match="operator"):
        tenant_of(alice, named)
    for scope in ("operator", "*"):
        operator = Caller(tenant="acme", subject="olga", scopes=frozenset({scope}))
        assert (None if named == "-" else named) == tenant_of(operator, named)
