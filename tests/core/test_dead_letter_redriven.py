"""What was given up is found, looked at, and tried again by who says so: once, under the same key, and only where
nothing was done.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from placet.context import Context
from placet.failure import Failure
from placet_server.core.execution.ending import StopCause, Stopped
from placet_server.core.execution.judgement import judge
from placet_server.core.kernel import Kernel
from placet_server.core.publication.promote import promote
from placet_server.core.publication.settle import settle
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.redrive import (
    RedriveCommand,
    Selected,
    list_dead_letters,
    list_queues,
    redrive,
)
from placet_server.model.action import Action, Submission
from placet_server.model.caller import Caller
from placet_server.model.errors import MalformedRequest
from placet_server.model.event import Event
from placet_server.model.lifecycle import ActionState
from placet_server.model.query import DeadLetterFilter
from placet_server.store import event as events
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    ALICE,
    BOB,
    EVE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
    places,
    put,
    read,
    run,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)
QUEUED = ActionState.QUEUED


def declining(shop: Workshop, effect: Any = "not_done") -> Workshop:
    async def decline(context: Context) -> Any:
        raise Failure("declined", "no", category="permanent", effect=effect)

    shop.script = decline
    return shop


def repair(shop: Workshop) -> None:
    shop.script = None
    shop.gate.set()


async def give_up(kernel: Kernel, capability: str = "work.idempotent", key: str = "k", **options: Any) -> str:
    """Submits it, and lets it fail for good."""
    action_id = (await put(kernel, capability, {}, key, **options)).action.action_id
    await work_off(kernel)
    return action_id


async def allowed(action: Action) -> int:
    return 3


async def again(kernel: Kernel, *ids: str, caller: Caller = ALICE, **members: Any) -> list[Selected]:
    return await redrive(kernel.journal, caller, RedriveCommand(action_ids=ids, **members), allowed)


def refused(action_id: str, state: ActionState | None, rule: str) -> list[Selected]:
    return [Selected(action_id=action_id, state=state, changed=False, refused_rule=rule)]


def changed(action_id: str, state: ActionState = QUEUED) -> list[Selected]:
    return [Selected(action_id=action_id, state=state, changed=True)]


async def dead(kernel: Kernel, tenant: str | None = "acme", **matching: Any) -> list[str]:
    found = await list_dead_letters(
        kernel.journal, tenant=tenant, matching=DeadLetterFilter(**matching), page_size=10
    )
    return [action.action_id for action in found]


async def watched(kernel: Kernel, action_id: str, after_cursor: str = "") -> list[Event]:
    items = watch_action(kernel.journal, ALICE, action_id, after_cursor)
    return [item async for item in items if isinstance(item, Event)]


async def test_a_dead_letter_is_listed_redriven_and_succeeds_under_its_key(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await give_up(kernel)
        assert [action_id] == await dead(kernel)
        await kernel.journal.doorbell.wait(0)
        repair(shop)
        assert changed(action_id) == await again(kernel, action_id, reason="provider is back")
        assert "work.idempotent" in {line.capability for line in await kernel.journal.doorbell.wait(0)}
        assert [] == await dead(kernel)
        await work_off(kernel)
        done = await read(kernel, action_id)
        resent = await put(kernel, "work.idempotent", {}, "k")
        executed = await run(kernel, "work.idempotent", {}, "k")
    assert (ActionState.SUCCEEDED, 2, 2, {"order": "1"}) == (
        done.state,
        done.generation,
        done.attempt,
        output(done),
    )
    assert (True, action_id, action_id) == (
        resent.attached,
        resent.action.action_id,
        executed.action.action_id,
    )
    assert ([1, 2], 1) == (shop.attempts, shop.effects)


async def test_the_event_says_who_and_why_and_the_chain_holds(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await give_up(kernel)
        await again(kernel, action_id, caller=BOB, reason='"fixed" ü', attempts=7, request="r1")
        stored = await read(kernel, action_id)
        async with kernel.journal.pool.connection() as connection:
            receipts = await events.list_receipts(connection, "acme", action_id)
    previous = b""
    for receipt in receipts:
        link = "\n".join(
            (action_id, str(receipt.sequence), receipt.type, str(receipt.create_time_us), receipt.body)
        )
        previous = hashlib.sha256(previous + link.encode()).digest()
        assert previous.hex() == receipt.receipt
    assert ("redriven", stored.receipt_digest) == (receipts[-1].type, previous.hex())
    assert {
        "attempts": 7,
        "generation": 2,
        "reason": '"fixed" ü',
        "request": "r1",
        "requester": "bob",
    } == orjson.loads(receipts[-1].body)
    assert (8, None, "") == (stored.attempts_max, stored.reason, stored.failure_code)


async def test_a_watcher_sees_both_lives_and_ends_with_the_newest(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await give_up(kernel)
        first = await watched(kernel, action_id)
        assert ["admitted", "attempt_started", "settled"] == [event.type.value for event in first]
        await again(kernel, action_id)
        resumed = asyncio.create_task(watched(kernel, action_id, first[-1].cursor))
        whole = asyncio.create_task(watched(kernel, action_id))
        await asyncio.sleep(0.1)
        assert not resumed.done()
        assert not whole.done()
        repair(shop)
        await work_off(kernel)
        second = ["redriven", "attempt_started", "settled"]
        assert second == [event.type.value for event in await resumed]
        seen = await whole
        assert ["admitted", "attempt_started", "settled", *second] == [event.type.value for event in seen]
        assert ["FAILED", "SUCCEEDED"] == [e.body["kind"] for e in seen if e.type.value == "settled"]
        assert [1, 2, 3, 4, 5, 6] == [event.sequence for event in seen]
        # The cursor of the first life's end is no dead end either, once all is over.
        assert second == [event.type.value for event in await watched(kernel, action_id, first[-1].cursor)]
        assert [] == await watched(kernel, action_id, seen[-1].cursor)


async def test_a_slow_watcher_hears_of_a_redrive_that_came_while_it_read_the_end(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await give_up(kernel)
        items = watch_action(kernel.journal, ALICE, action_id, "")
        first = [await anext(items) for _ in range(3)]
        await again(kernel, action_id)
        repair(shop)
        await work_off(kernel)
        events_ = [item async for item in items]
    seen = [item.type.value for item in (*first, *events_) if isinstance(item, Event)]
    assert ["admitted", "attempt_started", "settled", "redriven", "attempt_started", "settled"] == seen


async def test_a_live_action_keeps_its_key_and_is_left_alone(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.idempotent", {}, "k")).action.action_id
        assert refused(action_id, QUEUED, "not_terminal") == await again(kernel, action_id)
        await dispatch(kernel)
        await shop.began.wait()
        before = await read(kernel, action_id)
        assert refused(action_id, ActionState.RUNNING, "not_terminal") == await again(kernel, action_id)
        assert before == await read(kernel, action_id)
        assert action_id == (await put(kernel, "work.idempotent", {}, "k")).action.action_id
        shop.gate.set()
        await work_off(kernel)
        done = ActionState.SUCCEEDED
        assert refused(action_id, done, "effect_done") == await again(kernel, action_id)


@pytest.mark.parametrize("validate_only", [True, False])
async def test_what_took_effect_or_may_have_is_not_redriven(database: Database, validate_only: bool) -> None:
    async with open_kernel(database.dsn, declining(shop := Workshop(), "done").app, queue=QUEUE) as kernel:
        done = await give_up(kernel, "work.unsafe", "a")
        declining(shop, "unknown")
        unknown = await give_up(kernel, "work.unsafe", "b")
        results = await again(kernel, done, unknown, validate_only=validate_only)
    assert (
        refused(done, ActionState.FAILED, "effect_done")
        + refused(unknown, ActionState.AMBIGUOUS, "effect_ambiguous")
        == results
    )


async def test_what_is_not_mine_is_not_there(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await give_up(kernel)
        missing = "0190a0a0-0000-7000-8000-000000000000"
        assert refused(action_id, None, "not_found") == await again(kernel, action_id, caller=EVE)
        assert refused(missing, None, "not_found") == await again(kernel, missing)
        everything = RedriveCommand(matching=DeadLetterFilter())
        assert [] == await redrive(kernel.journal, EVE, everything, allowed)
        assert ([], [action_id], [action_id]) == (
            await dead(kernel, "evil"),
            await dead(kernel, "acme"),
            await dead(kernel, None),
        )
        assert 1 == (await read(kernel, action_id)).generation


async def test_an_action_whose_key_another_one_holds_is_not_redriven(database: Database) -> None:
    clock = FixedClock(START)
    shop = declining(Workshop(key_ttl=3600))
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        old = await give_up(kernel)
        clock.advance(timedelta(hours=2))
        new = await give_up(kernel)
        assert new != old
        for validate_only in (True, False):
            results = await again(kernel, old, validate_only=validate_only)
            assert refused(old, ActionState.FAILED, "key_taken") == results
        assert changed(new) == await again(kernel, new)


async def test_looking_changes_nothing(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await give_up(kernel)
        before, stood = await read(kernel, action_id), await places(kernel)
        looked = await again(kernel, action_id, validate_only=True)
        assert changed(action_id, ActionState.FAILED) == looked
        assert (before, stood) == (await read(kernel, action_id), await places(kernel))


@pytest.mark.both_servers
async def test_two_redrives_at_once_make_one_generation(database: Database) -> None:
    shop = declining(Workshop())
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app) as two,
    ):
        for round_ in range(10):
            action_id = await give_up(one, key=f"k{round_}")
            (first,), (second,) = await asyncio.gather(again(one, action_id), again(two, action_id))
            assert [False, True] == sorted((first.changed, second.changed))
            loser = second if first.changed else first
            assert (QUEUED, "not_terminal") == (loser.state, loser.refused_rule)
            assert 2 == (await read(one, action_id)).generation


async def test_a_resent_redrive_is_the_same_redrive(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = await give_up(kernel)
        at_once = await asyncio.gather(*(again(kernel, action_id, request="r") for _ in range(5)))
        assert [changed(action_id)] * 5 == at_once
        assert refused(action_id, QUEUED, "not_terminal") == await again(kernel, action_id, request="s")
        await work_off(kernel)
        # It has failed again: a resend tells so, another request tries.
        failed = ActionState.FAILED
        assert changed(action_id, failed) == await again(kernel, action_id, request="r")
        assert 2 == (await read(kernel, action_id)).generation
        assert changed(action_id) == await again(kernel, action_id, caller=BOB, request="r")
        await work_off(kernel)
        assert changed(action_id) == await again(kernel, action_id, request="r")
        assert 4 == (await read(kernel, action_id)).generation


@pytest.mark.both_servers
async def test_dead_letters_are_redriven_by_what_they_are_oldest_first(database: Database) -> None:
    shop = declining(Workshop())
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        slow = [await give_up(kernel, key=f"s{i}", place=Submission(queue="slow")) for i in range(3)]
        read_only = await give_up(kernel, "work.reconcilable_marked", "r")
        assert [*reversed(slow)] == await dead(kernel, queue="slow")
        assert [read_only] == await dead(kernel, capabilities=("work.reconcilable_marked",))
        assert [] == await dead(kernel, reason="RETRY_BUDGET")
        some = RedriveCommand(matching=DeadLetterFilter(queue="slow"), count_max=2)
        done = await redrive(kernel.journal, ALICE, some, allowed)
        assert slow[:2] == [item.action_id for item in done]
        assert [read_only, slow[2]] == await dead(kernel)
        depths = await list_queues(kernel.journal, tenant="acme")
        assert [("slow", 2, 0)] == [(depth.name, depth.ready, depth.delayed) for depth in depths]
        assert [] == await list_queues(kernel.journal, tenant="evil")


async def test_a_new_generation_has_a_budget_of_its_own(database: Database) -> None:
    clock, attempts = FixedClock(START), 0
    shop = Workshop(retry_elapsed_max=60)

    async def busy(context: Context) -> Any:
        nonlocal attempts
        attempts += 1
        raise Failure("busy", category="temporary", effect="not_done")

    shop.script = busy
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.read", {}, "k")).action.action_id
        for generation, more in ((1, 3), (2, 2)):
            before = attempts
            for _ in range(6):
                await promote(kernel.journal)
                await work_off(kernel)
                clock.advance(timedelta(seconds=5))
            ended = await read(kernel, action_id)
            assert (ActionState.EXHAUSTED, generation, more) == (
                ended.state,
                ended.generation,
                attempts - before,
            )
            clock.advance(timedelta(hours=1))
            await again(kernel, action_id, attempts=2)


async def test_what_was_executed_and_given_up_is_run_from_the_default_queue(database: Database) -> None:
    shop = Workshop(attempts_max=1)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as survivor:
        async with open_kernel(database.dsn, shop.app) as lost:
            call = asyncio.create_task(run(lost, "work.read", {}, "k"))
            await shop.began.wait()
            await declare_dead(lost)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        async with survivor.journal.pool.connection() as connection:
            action_id = await connection.fetchval("select action_id::text from actions")
        action = await read(survivor, action_id)
        verdict = judge(action, Stopped(cause=StopCause.INSTANCE_LOST), now_us=action.create_time_us)
        assert await settle(survivor.journal, action, verdict, as_read=True) is not None
        assert [action_id] == await dead(survivor)
        shop.gate.set()
        assert changed(action_id) == await again(survivor, action_id)
        await work_off(survivor)
        done = await read(survivor, action_id)
    assert (ActionState.SUCCEEDED, "default", 2) == (done.state, done.queue, done.generation)


@pytest.mark.parametrize("member", ["queue", "reason"])
async def test_a_filter_that_no_row_can_match_is_refused(database: Database, member: str) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        with pytest.raises(MalformedRequest):
            await dead(kernel, **{member: "a\x00b"})
        command = RedriveCommand(matching=DeadLetterFilter(capabilities=("\x00",)))
        with pytest.raises(MalformedRequest):
            await redrive(kernel.journal, ALICE, command, allowed)
