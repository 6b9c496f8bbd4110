"""What others are told: in the tx of what it tells of, once for each target, until somebody has it or nobody will."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from placet_server.core.kernel import Kernel
from placet_server.core.publication.callback import TARGETLESS, get_delivery, list_deliveries, redeliver
from placet_server.core.publication.deliver import LOST, DeliverySettings, allot
from placet_server.model.callback import (
    DELAY_SECONDS_MAX,
    Delivery,
    DeliveryFilter,
    DeliveryState,
    Tried,
    delay_seconds,
    judge,
)
from placet_server.model.errors import NotFound
from placet_server.store.callback import TargetKey
from tests.core.kernels import ALICE, BOB, EVE, open_kernel
from tests.core.receiver import (
    OLD_SECRET,
    SECRET,
    Receiver,
    aim,
    callback,
    deliverer,
    make_due,
    open_receiver,
    says,
    send,
    sends,
    stored,
    target,
    tell,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
async def kernel(database: Database) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, Workshop().app) as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with open_receiver() as opened:
        yield opened


async def test_what_is_undone_is_not_told_and_what_is_told_twice_is_told_once(
    kernel: Kernel, receiver: Receiver
) -> None:
    aim(kernel, target(receiver))
    with pytest.raises(ZeroDivisionError):
        await tell(kernel, callback(1), stop=ZeroDivisionError())
    await tell(kernel, callback(2), callback(2))
    await tell(kernel, callback(2), callback(2, key="GRANTED"), callback(2, tenant="evil"))
    sending = deliverer(kernel)
    await send(sending)
    await make_due(kernel)
    await send(sending)
    first, second = sorted(receiver.events(), key=lambda event: str(event["id"]))
    assert {callback(2).event_id, callback(2, key="GRANTED").event_id} == {first["id"], second["id"]}
    assert [("DELIVERED", 1, 204, "")] * 2 == await stored(kernel)


async def test_what_arrives_is_a_cloud_event_that_both_secrets_have_signed(
    kernel: Kernel, receiver: Receiver
) -> None:
    headers = (("authorization", "Bearer x"), ("x-team", "payments"))
    aim(kernel, target(receiver, secrets=(SECRET, OLD_SECRET), headers=headers))
    told = callback(7, action_id="0199b0c0-0000-7000-8000-000000000001")
    await tell(kernel, told)
    await send(deliverer(kernel))
    (got,) = receiver.received
    event = json.loads(got.body)
    assert ("/told", "application/cloudevents+json; charset=utf-8") == (got.path, got.headers["content-type"])
    assert ("Bearer x", "payments") == (got.headers["authorization"], got.headers["x-team"])
    assert datetime.fromisoformat(event.pop("time")).tzinfo is not None
    assert {
        "specversion": "1.0",
        "id": told.event_id,
        "source": "/test/tenants/acme",
        "type": told.type,
        "subject": "approvals/7",
        "datacontenttype": "application/json",
        "data": {"approval_id": "7", "title": "Pay"},
    } == event
    for secret in (SECRET, OLD_SECRET):
        assert told.delivery_id("desk") == got.verified(secret).id


async def test_each_target_is_told_what_it_wants_under_an_id_of_its_own(
    kernel: Kernel, receiver: Receiver
) -> None:
    aim(
        kernel,
        target(receiver, "all", types=("*",)),
        target(receiver, "this", types=(callback().type,)),
        target(receiver, "other", types=("dev.placet.approval.ended",)),
        target(receiver, "foreign", tenant="evil"),
    )
    await tell(kernel, callback())
    await send(deliverer(kernel))
    expected = {callback().delivery_id(name) for name in ("all", "this")}
    assert expected == {each.headers["webhook-id"] for each in receiver.received}
    assert 1 == len({each.body for each in receiver.received})


async def test_a_receiver_that_was_down_is_told_the_same_when_it_is_up(kernel: Kernel) -> None:
    async with open_receiver() as receiver:
        aim(kernel, target(receiver))
    await tell(kernel, callback())
    sending = deliverer(kernel)
    await send(sending)
    ((state, attempts, status, error),) = await stored(kernel)
    assert ("PENDING", 1, 0) == (state, attempts, status)
    assert "cannot be reached" in error
    async with open_receiver() as receiver:
        receiver.answers = [says(503, "Retry-After: 1"), says(200, body=b"taken")]
        aim(kernel, target(receiver))
        for _ in range(2):
            await make_due(kernel)
            await send(sending)
    assert [("DELIVERED", 3, 200, "")] == await stored(kernel)
    one, other = receiver.received
    assert (one.body, one.verified().id) == (other.body, other.verified().id)


@pytest.mark.parametrize(
    ("status", "state"), [(410, "DEAD"), (422, "DEAD"), (404, "PENDING"), (301, "PENDING")]
)
async def test_what_would_be_refused_again_is_not_sent_again(
    kernel: Kernel, receiver: Receiver, status: int, state: str
) -> None:
    aim(kernel, target(receiver))
    receiver.answers = [says(status)]
    await tell(kernel, callback())
    await send(deliverer(kernel))
    ((found, attempts, last_status, error),) = await stored(kernel)
    assert (state, 1, status) == (found, attempts, last_status)
    assert str(status) in error


async def test_last_attempt_that_fails_ends_it_and_so_does_one_that_never_says_how_it_ended(
    kernel: Kernel, receiver: Receiver
) -> None:
    aim(kernel, target(receiver), attempts_max=1)
    receiver.answers = [says(500)]
    await tell(kernel, callback(1))
    await send(deliverer(kernel))
    assert [("DEAD", 1, 500, "answered 500")] == await stored(kernel)

    receiver.answers = [sends()]
    receiver.arrived.clear()
    await tell(kernel, callback(2))
    lost = deliverer(kernel)
    assert await lost.run_once()
    await receiver.arrived.wait()
    # As the process that sent it is gone, its lease ends.
    await make_due(kernel)
    await send(deliverer(kernel))
    assert ("DEAD", 1, 0, LOST) == (await stored(kernel))[1]
    assert 2 == len(receiver.received)
    receiver.answers = [says(200)]
    await lost.close()


async def test_two_senders_send_one_delivery_once_and_a_lost_lease_says_nothing(
    kernel: Kernel, receiver: Receiver
) -> None:
    aim(kernel, target(receiver))
    receiver.answers = [sends(), says(200)]
    await tell(kernel, callback())
    slow, other = deliverer(kernel, attempt_seconds=1.0), deliverer(kernel)
    assert [True, False] == [await slow.run_once(), await other.run_once()]
    await receiver.arrived.wait()
    await make_due(kernel)
    await send(other)
    assert [("DELIVERED", 2, 200, "")] == await stored(kernel)
    assert await slow.join(30)
    assert [("DELIVERED", 2, 200, "")] == await stored(kernel)


async def test_what_is_under_way_at_the_end_is_given_to_others_at_once(
    kernel: Kernel, receiver: Receiver
) -> None:
    aim(kernel, target(receiver))
    receiver.answers = [sends(), says(200)]
    await tell(kernel, callback())
    ending = deliverer(kernel, attempt_seconds=30.0)
    await ending.run_once()
    await receiver.arrived.wait()
    closing = asyncio.ensure_future(ending.close())
    # One turn, in which it begins to.
    await asyncio.sleep(0)
    assert not await ending.run_once()
    await closing
    await send(deliverer(kernel))
    assert [("DELIVERED", 2, 200, "")] == await stored(kernel)


async def test_redelivery_is_once_for_each_key_and_has_attempts_of_its_own(
    kernel: Kernel, receiver: Receiver
) -> None:
    aim(kernel, target(receiver), attempts_max=2)
    receiver.answers = [says(400), says(500), says(200)]
    await tell(kernel, callback())
    sending = deliverer(kernel)
    await send(sending)
    delivery_id = callback().delivery_id("desk")
    again = [await redeliver(kernel.journal, ALICE, delivery_id, key="k") for _ in range(2)]
    assert [(DeliveryState.PENDING, 2, 1, 3)] * 2 == [
        (each.state, each.generation, each.attempts, each.attempts_max) for each in again
    ]
    await send(sending)
    await make_due(kernel)
    await send(sending)
    assert DeliveryState.DELIVERED is (await redeliver(kernel.journal, ALICE, delivery_id, key="k")).state
    assert DeliveryState.PENDING is (await redeliver(kernel.journal, BOB, delivery_id, key="k")).state
    await send(sending)
    assert 4 == len(receiver.received)
    assert 1 == len({each.verified().id for each in receiver.received})
    for stranger, sought in ((EVE, delivery_id), (ALICE, callback(9).delivery_id("desk"))):
        with pytest.raises(NotFound):
            await redeliver(kernel.journal, stranger, sought, key="")
        with pytest.raises(NotFound):
            await get_delivery(kernel.journal, stranger.tenant, sought)


@pytest.mark.parametrize("answer", [500, 200])
async def test_redelivery_asked_for_during_an_attempt_is_not_answered_by_it(
    kernel: Kernel, receiver: Receiver, answer: int
) -> None:
    aim(kernel, target(receiver), attempts_max=1)
    asked = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked.wait()
        await says(answer)(reader, writer)

    receiver.answers = [late, says(204)]
    await tell(kernel, callback())
    sending = deliverer(kernel)
    await sending.run_once()
    await receiver.arrived.wait()
    await redeliver(kernel.journal, ALICE, callback().delivery_id("desk"), key="k")
    asked.set()
    assert await sending.join(30)
    assert [("PENDING", 1, answer)] == await stored(kernel, "state, attempts, last_status")
    await send(sending)
    assert [("DELIVERED", 2, 204)] == await stored(kernel, "state, attempts, last_status")


async def test_lists_go_on_where_a_page_ended_and_show_what_was_asked_for(kernel: Kernel) -> None:
    aim(kernel, target("http://127.0.0.1:1/", "a"), target("http://127.0.0.1:1/", "b"))
    about = "0199b0c0-0000-7000-8000-000000000001"
    for number in range(3):
        await tell(kernel, callback(number, action_id=about if number else None))

    async def ids(tenant: str | None = "acme", before: str = "", **matching: Any) -> list[str]:
        found = await list_deliveries(
            kernel.journal,
            tenant=tenant,
            matching=DeliveryFilter(**matching),
            page_size=4,
            before=before,
        )
        assert all(each.data == "" for each in found)
        return [each.delivery_id for each in found]

    first = await ids()
    rest = await ids(before=first[-1])
    assert (4, 2, 6) == (len(first), len(rest), len({*first, *rest}))
    assert {callback(2).delivery_id(name) for name in "ab"} == set(first[:2])
    assert first == await ids(None)
    assert first == await ids(action_id=about)
    assert [callback(number).delivery_id("b") for number in (2, 1, 0)] == await ids(target="b")
    assert [] == await ids(states=(DeliveryState.DEAD,))
    assert [] == await ids("evil")
    assert [] == await ids("evil", action_id=about)


async def test_what_nobody_could_send_for_an_hour_is_given_up_when_its_target_is_gone(kernel: Kernel) -> None:
    aim(kernel, target("http://127.0.0.1:1/", "gone"), target("http://127.0.0.1:1/", "kept"))
    await tell(kernel, callback())
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update deliveries set next_time = now() - interval '2 hours'")
    aim(kernel, target("http://127.0.0.1:1/", "kept"))
    sending = deliverer(kernel)
    assert [1, 0] == [await sending.bury_without_target(), await sending.bury_without_target()]
    assert {("gone", "DEAD", TARGETLESS), ("kept", "PENDING", "")} == set(
        await stored(kernel, "target, state, last_error")
    )


async def test_a_slow_target_holds_up_no_other(kernel: Kernel, receiver: Receiver) -> None:
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(open_receiver()) for _ in range(3)]
        for each in slow:
            each.answers = [sends()]
        targets = [target(each, f"slow{index}") for index, each in enumerate(slow)]
        aim(kernel, *targets, target(receiver, "fast"))
        await tell(kernel, *(callback(number) for number in range(8)))
        sending = deliverer(kernel, slots_max=8, attempt_seconds=20.0)
        async with asyncio.timeout(15):
            while len(receiver.received) < 8:
                await sending.run_once()
                await kernel.journal.callbacks.wait(0.05)
        assert all(len(each.received) <= 4 for each in slow)
        for each in slow:
            each.answers = [says(200)]
        await sending._supervisor.cancel_all()


def test_slots_are_shared_between_targets_and_tenants() -> None:
    settings = DeliverySettings(source="", slots_max=8)
    a, b = [TargetKey("a", str(number)) for number in range(9)], TargetKey("b", "0")
    due = dict.fromkeys([*a, b], 4)
    assert dict.fromkeys(a[:4], 1) | {b: 1} == allot([*a, b], due, {}, settings, is_alone=False)
    assert {b: 4} == allot([b], due, {}, settings, is_alone=False)
    assert {b: 1} == allot([b], due, {a[0]: 4}, settings, is_alone=False)
    assert {} == allot([b], due, {a[0]: 4, b: 1}, settings, is_alone=False)
    assert {} == allot([a[1]], due, {a[0]: 4}, settings, is_alone=False)
    assert 8 == sum(allot(a, due, {}, settings, is_alone=True).values())
    assert {b: 2} == allot([b], {b: 2}, {}, settings, is_alone=False)


DELIVERY = Delivery(
    tenant="acme",
    delivery_id="d",
    target="desk",
    type="t",
    subject="s",
    event_id="e",
    action_id=None,
    data="{}",
    state=DeliveryState.PENDING,
    generation=1,
    attempts=1,
    attempts_max=12,
    create_time_us=0,
    next_time_us=0,
    end_time_us=None,
    last_status=0,
    last_error="",
)


def test_pauses_grow_spread_and_end_and_a_receiver_may_ask_for_longer_ones() -> None:
    pauses = [delay_seconds("d", attempt) for attempt in range(1, 12)]
    nominal = (5, 20, 80, 320, 1280, 5120)
    assert all(0.8 * n <= pause <= 1.2 * n for n, pause in zip(nominal, pauses, strict=False))
    assert max(pauses) <= 1.2 * DELAY_SECONDS_MAX
    assert 12 * 3600 < sum(pauses) < 36 * 3600
    assert 1 < len({delay_seconds(str(number), 1) for number in range(5)})
    later = format_datetime(NOW + timedelta(hours=1), usegmt=True)
    for said, expected in (
        ("120", 120.0),
        (later, 3600.0),
        ("99999999999999", DELAY_SECONDS_MAX),
        ("-5", delay_seconds("d", 1)),
        ("soon", delay_seconds("d", 1)),
        ("1", delay_seconds("d", 1)),
    ):
        assert expected == judge(DELIVERY, Tried(503, retry_after=said), NOW).delay_seconds
    last = replace(DELIVERY, attempts=12)
    assert DeliveryState.DEAD is judge(last, Tried(0, "x" * 9999), NOW).state
    assert 512 == len(judge(last, Tried(0, "x" * 9999), NOW).error)
