"""What an approval comes to is told if and only if it is so, once for each target."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet_server.core.decision.expire import pass_time
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.core.recovery.rescue import close_unwanted
from placet_server.model.action import Action
from placet_server.model.errors import StateConflict
from placet_server.model.gate_errors import IdempotencyConflict
from placet_server.store import callback as rows
from placet_server.store.clock import FixedClock
from tests.core.kernels import ALICE, QUEUE, dispatch, open_kernel, put, read, states, until_stored, work_off
from tests.core.people import ANNA, BEN, CARL, DENY, take_back, vote
from tests.core.policies import admit
from tests.core.receiver import Receiver, aim, deliverer, make_due, open_receiver, send, target
from tests.core.workshop import Workshop
from tests.postgres import Database

REQUESTED, ESCALATED, DECIDED, ENDED = (
    f"dev.placet.approval.{word}" for word in ("requested", "escalated", "decided", "ended")
)


@pytest.fixture
async def kernel(database: Database) -> AsyncIterator[Kernel]:
    shop = Workshop(approval="2 of role:finance")
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as opened:
        yield opened


async def ask(kernel: Kernel, key: str = "k", **options: Any) -> tuple[str, str]:
    """The approval that submitting has made, and its action."""
    action = (await put(kernel, "work.unsafe", {"order": "secret"}, key, **options)).action
    assert action.approval_id is not None
    return action.approval_id, action.action_id


async def told(kernel: Kernel, action_id: str | None = None) -> list[tuple[str, str, dict[str, Any]]]:
    """Target, type and data, as they were told."""
    async with kernel.journal.pool.connection() as connection:
        found = await connection.fetch(
            "select target, type, data from deliveries where $1::uuid is null or action_id = $1 "
            "order by create_time, target, type",
            action_id,
        )
    return [(row["target"], row["type"], json.loads(row["data"])) for row in found]


async def test_a_request_is_told_with_the_action_once_for_each_target_that_wants_it(kernel: Kernel) -> None:
    aim(
        kernel,
        target("http://127.0.0.1:1/", "all"),
        target("http://127.0.0.1:1/", "asked", types=(REQUESTED,)),
        target("http://127.0.0.1:1/", "ended", types=(ENDED,)),
        target("http://127.0.0.1:1/", "foreign", tenant="evil"),
    )
    approval_id, action_id = await ask(kernel)
    attached, _ = await ask(kernel)
    assert approval_id == attached
    with pytest.raises(IdempotencyConflict):
        await put(kernel, "work.unsafe", {"order": "other"}, "k")
    found = await told(kernel)
    assert [("all", REQUESTED), ("asked", REQUESTED)] == [each[:2] for each in found]
    expire_time = found[0][2].pop("expire_time")
    assert {
        "action_id": action_id,
        "approval_id": approval_id,
        "capability": "work.unsafe",
        "state": "PENDING",
        "title": found[0][2]["title"],
    } == found[0][2]
    assert "secret" not in json.dumps(found)
    # As the facts of the later ones have it.
    await vote(kernel, approval_id, ANNA)
    later = [data for _, type_, data in await told(kernel) if type_ == DECIDED]
    assert [expire_time] == [data["expire_time"] for data in later]


async def test_votes_and_the_end_that_they_make_are_told_in_order_of_no_importance(kernel: Kernel) -> None:
    async with open_receiver() as receiver:
        aim(kernel, target(receiver))
        approval_id, _ = await ask(kernel)
        for voter in (ANNA, ANNA, BEN):
            await vote(kernel, approval_id, voter)
        sending = deliverer(kernel)
        await send(sending)
        await make_due(kernel)
        await send(sending)
        await work_off(kernel)
    assert ["SUCCEEDED"] == await states(kernel)
    assert 4 == len({each.verified().id for each in receiver.received}) == len(receiver.received)
    assert sorted(
        [
            (REQUESTED, "PENDING", None, None),
            (DECIDED, "PENDING", ANNA.subject, False),
            (DECIDED, "GRANTED", BEN.subject, True),
            (ENDED, "GRANTED", None, None),
        ],
        key=str,
    ) == sorted(_summaries(receiver), key=str)


def _summaries(receiver: Receiver) -> list[tuple[Any, ...]]:
    events = [each.verified().event for each in receiver.received]
    return [
        (event["type"], data["state"], data.get("voter"), data.get("completes"))
        for event in events
        for data in (event["data"],)
    ]


async def test_a_no_and_a_withdrawal_are_told(kernel: Kernel) -> None:
    aim(kernel, target("http://127.0.0.1:1/"))
    denied, denied_action = await ask(kernel, "denied")
    await vote(kernel, denied, ANNA, verdict=DENY)
    with pytest.raises(StateConflict):
        await vote(kernel, denied, CARL)
    _, withdrawn_action = await ask(kernel, "withdrawn")
    await cancel_action(kernel.engine, ALICE, withdrawn_action, "not wanted any more")
    await close_unwanted(kernel.journal)
    assert [(REQUESTED, "PENDING"), (DECIDED, "DENIED"), (ENDED, "DENIED")] == [
        (type_, data["state"]) for _, type_, data in await told(kernel, denied_action)
    ]
    assert [(REQUESTED, "PENDING"), (ENDED, "WITHDRAWN")] == [
        (type_, data["state"]) for _, type_, data in await told(kernel, withdrawn_action)
    ]


async def test_what_cannot_be_told_is_not_so(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    aim(kernel, target("http://127.0.0.1:1/"))
    approval_id, action_id = await ask(kernel)
    insert = rows.insert

    async def fails_for_ends(connection: Any, callback: Any, *arguments: Any, **options: Any) -> None:
        await insert(connection, callback, *arguments, **options)
        if callback.type == ENDED:
            raise ZeroDivisionError

    monkeypatch.setattr(rows, "insert", fails_for_ends)
    with pytest.raises(ZeroDivisionError):
        await vote(kernel, approval_id, ANNA, verdict=DENY)
    assert ["WAITING"] == await states(kernel)
    assert [REQUESTED] == [type_ for _, type_, _ in await told(kernel, action_id)]
    monkeypatch.undo()
    await vote(kernel, approval_id, ANNA, verdict=DENY)
    assert [REQUESTED, DECIDED, ENDED] == [type_ for _, type_, _ in await told(kernel, action_id)]


async def test_what_is_taken_back_escalated_or_late_is_told(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance; ttl=2h; escalate=role:head after 1h")
    clock = FixedClock(datetime(2030, 1, 1, tzinfo=UTC))
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        aim(kernel, target("http://127.0.0.1:1/"))
        taken, taken_action = await ask(kernel, "taken")
        await vote(kernel, taken, ANNA, decision_id="d")
        clock.advance(timedelta(seconds=1))
        for _ in range(2):
            await take_back(kernel, taken, decision_id="d")
        assert [
            (REQUESTED, "PENDING", None),
            (DECIDED, "GRANTED", False),
            (ENDED, "GRANTED", None),
            (DECIDED, "REVOKED", True),
            (ENDED, "REVOKED", None),
        ] == [
            (type_, data["state"], data.get("taken_back"))
            for _, type_, data in sorted(await told(kernel, taken_action), key=_told_order)
        ]
        _, late_action = await ask(kernel, "late")
        for _ in range(3):
            clock.advance(timedelta(hours=1))
            await pass_time(kernel.journal)
            await pass_time(kernel.journal)
        assert [(REQUESTED, "PENDING"), (ESCALATED, "PENDING"), (ENDED, "EXPIRED")] == [
            (type_, data["state"]) for _, type_, data in await told(kernel, late_action)
        ]


def _told_order(each: tuple[str, str, dict[str, Any]]) -> tuple[int, str]:
    """As they came to pass: those of one moment by type."""
    return ["PENDING", "GRANTED", "REVOKED"].index(each[2]["state"]), each[1]


async def test_a_step_that_waits_is_told_with_its_own_action(database: Database) -> None:
    app, first = App("family"), asyncio.Event()

    @app.tool("family.paid", "idempotent", approval="1 of role:finance")
    async def paid() -> None:
        return None

    @app.tool("family.top", "idempotent", attempts_max=1)
    async def top(context: Context) -> None:
        first.set()
        await context.call("pay", "family.paid", {})

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        aim(kernel, target("http://127.0.0.1:1/"))
        parent = (await put(kernel, "family.top", {}, "k")).action
        await dispatch(kernel)
        await first.wait()

        async def is_told() -> bool:
            return bool(await told(kernel))

        await until_stored(is_told)
        ((_, type_, data),) = await told(kernel)
        assert (REQUESTED, "family.paid") == (type_, data["capability"])
        child = await read(kernel, data["action_id"])
        assert (parent.action_id, data["approval_id"]) == (child.parent_id, child.approval_id)
        await vote(kernel, data["approval_id"], ANNA)
        later = {type_: each["expire_time"] for _, type_, each in await told(kernel, child.action_id)}
        assert {REQUESTED, DECIDED, ENDED} == set(later)
        assert {data["expire_time"]} == set(later.values())
        await work_off(kernel)


async def test_what_is_tried_again_is_told_again(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance", attempts_max=1)
    shop.gate.set()

    async def fails(context: Context) -> None:
        raise Failure("no", "", effect="not_done")

    async def one(action: Action) -> int:
        return 1

    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        aim(kernel, target("http://127.0.0.1:1/", types=(REQUESTED,)))
        shop.script = fails
        action = (await put(kernel, "work.idempotent_marked", {"order": "1"}, "k")).action
        await vote(kernel, action.approval_id or "", ANNA)
        await work_off(kernel)
        command = RedriveCommand(action_ids=(action.action_id,))
        assert [True] == [each.changed for each in await redrive(kernel.journal, ALICE, command, one)]
        again = await read(kernel, action.action_id)
        told_of = [data["approval_id"] for _, _, data in await told(kernel, action.action_id)]
        assert [action.approval_id, again.approval_id] == told_of
        assert 2 == len(set(told_of))


async def test_what_is_asked_anew_by_other_policies_is_told(kernel: Kernel) -> None:
    aim(kernel, target("http://127.0.0.1:1/"))
    first, action_id = await ask(kernel)
    for voter in (ANNA, BEN):
        await vote(kernel, first, voter)
    await admit(kernel, '@id("legal") @approval("1 of role:legal") permit (principal, action, resource);')
    await work_off(kernel)
    assert ["WAITING"] == await states(kernel)
    second = (await read(kernel, action_id)).approval_id
    assert [(REQUESTED, second, "PENDING"), (ENDED, first, "WITHDRAWN")] == sorted(
        [
            (type_, data["approval_id"], data["state"])
            for _, type_, data in await told(kernel, action_id)
            if data["approval_id"] == second or data["state"] == "WITHDRAWN"
        ],
        reverse=True,
    )
