"""A step that waits for people lets its parent wait, and is told with its path; what is tried again is asked again."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import CallFailed, Failure
from placet_server.core.admission.pipeline import Call
from placet_server.core.admission.submit_batch import submit_batch
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import wait_action
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.model.action import Action, OnWait, Submission
from placet_server.model.decision import ApprovalState
from placet_server.model.errors import PlacetError, WaitExpired
from placet_server.model.lifecycle import ActionState
from tests.core.kernels import (
    ALICE,
    BOB,
    QUEUE,
    call_of,
    dispatch,
    open_kernel,
    put,
    read,
    run,
    until,
    until_stored,
    work_off,
)
from tests.core.people import CARL, DENY, ask, facts, look, vote
from tests.core.policies import admit
from tests.core.workshop import Workshop
from tests.postgres import Database


def family() -> App:
    """`top` calls `middle`, which calls `paid`, which people have to say yes to."""
    app = App("family")

    @app.tool("family.paid", "idempotent", approval="1 of role:finance")
    async def paid(order: str) -> str:
        return f"paid {order}"

    @app.tool("family.middle", "idempotent")
    async def middle(context: Context, order: str) -> Any:
        try:
            return await context.call("pay", "family.paid", {"order": order})
        except CallFailed as failed:
            raise Failure("unpaid", failed.outcome.kind, effect="not_done") from failed

    @app.tool("family.top", "idempotent", attempts_max=1)
    async def top(context: Context, order: str) -> Any:
        try:
            return await context.call("deliver", "family.middle", {"order": order})
        except CallFailed as failed:
            raise Failure("undelivered", failed.outcome.kind, effect="not_done") from failed

    return app


async def waiting(kernel: Kernel, action_id: str) -> Action:
    """The action once it tells a wait below it."""

    async def is_told() -> bool:
        await dispatch(kernel)
        return bool((await wait_action(kernel.journal, ALICE, action_id, 0.0)).waits)

    await until_stored(is_told)
    return await wait_action(kernel.journal, ALICE, action_id, 0.0)


async def waiting_anew(kernel: Kernel, action_id: str, before: str) -> str:
    """The approval after that one."""

    async def is_asked() -> bool:
        await dispatch(kernel)
        return (await read(kernel, action_id)).approval_id not in (None, before)

    await until_stored(is_asked)
    return (await read(kernel, action_id)).approval_id or ""


@pytest.mark.parametrize("says_yes", [True, False])
async def test_a_step_below_waits_and_whoever_asked_is_told_where(database: Database, says_yes: bool) -> None:
    async with open_kernel(database.dsn, family(), queue=QUEUE) as kernel:
        top = (await put(kernel, "family.top", {"order": "1"}, "k")).action
        held = await waiting(kernel, top.action_id)
        (wait,) = held.waits
        assert (ActionState.RUNNING, "deliver/pay") == (held.state, wait.step_path)
        with pytest.raises(WaitExpired) as caught:
            await run(kernel, "family.top", {"order": "1"}, "k", on_wait=OnWait.HOLD, time_left_seconds=0.2)
        outcome = caught.value.outcome
        assert outcome is not None
        assert [wait] == list(outcome.waits)
        child = await read(kernel, wait.action_id)
        assert ["admitted", "waiting"] == await facts(kernel, child.action_id)
        view = (
            await vote(kernel, wait.approval_id, verdict=DENY)
            if not says_yes
            else await vote(kernel, wait.approval_id)
        )
        assert "alice" == view.action.requester.subject
        await work_off(kernel)
        ended = await read(kernel, top.action_id)
        if says_yes:
            assert (ActionState.SUCCEEDED, '"paid 1"') == (ended.state, ended.output_json)
        else:
            assert (ActionState.FAILED, "DENIED") == (ended.state, (await read(kernel, wait.action_id)).state)


async def test_a_cancel_ends_a_step_that_waits_and_nobody_need_decide(database: Database) -> None:
    async with open_kernel(database.dsn, family(), queue=QUEUE) as kernel:
        top = (await put(kernel, "family.top", {"order": "1"}, "k")).action
        (wait,) = (await waiting(kernel, top.action_id)).waits
        await cancel_action(kernel.engine, BOB, top.action_id, "")
        step = await read(kernel, wait.action_id)
        assert (ActionState.CANCELLED, 0) == (step.state, step.attempt)
        assert ApprovalState.WITHDRAWN is (await look(kernel, wait.approval_id)).approval.state
        await until(lambda: not len(kernel.engine.runs))


async def test_a_yes_after_the_parent_has_ended_begins_nothing(database: Database) -> None:
    app, entered = App("late"), []

    @app.tool("late.paid", "idempotent", approval="1 of role:finance")
    async def paid() -> None:
        entered.append(1)

    @app.tool("late.parent", "read", attempts_max=1)
    async def parent(context: Context) -> Any:
        call = asyncio.ensure_future(context.call("look", "late.look", {}))
        await asked.wait()
        call.cancel()
        return None

    @app.tool("late.look", "read", approval="1 of role:finance")
    async def look_(context: Context) -> None:
        entered.append(2)

    asked = asyncio.Event()
    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        top = (await put(kernel, "late.parent", {}, "k")).action
        (wait,) = (await waiting(kernel, top.action_id)).waits
        asked.set()
        await until(lambda: not len(kernel.engine.runs))
        assert ActionState.SUCCEEDED is (await read(kernel, top.action_id)).state
        await vote(kernel, wait.approval_id)
        await work_off(kernel)
        child = await read(kernel, wait.action_id)
        assert (ActionState.CANCELLED, "PARENT_ENDED", []) == (child.state, child.cause, entered)


async def test_a_yes_to_what_was_asked_anew_begins_nothing_after_the_parent_has_ended(
    database: Database,
) -> None:
    app, entered, over = App("late"), [], asyncio.Event()
    ask_of = (
        '@id("ask") @approval("1 of role:{}") permit (principal, action == Action::"late.look", resource);'
    )
    everything = '@id("all") permit (principal, action, resource);'

    @app.tool("late.parent", "read", attempts_max=1)
    async def parent(context: Context) -> None:
        call = asyncio.ensure_future(context.call("look", "late.look", {}))
        await over.wait()
        call.cancel()

    @app.tool("late.look", "read")
    async def look_(context: Context) -> None:
        entered.append(1)

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        await admit(kernel, everything + ask_of.format("finance"))
        top = (await put(kernel, "late.parent", {}, "k")).action
        (wait,) = (await waiting(kernel, top.action_id)).waits
        await vote(kernel, wait.approval_id)
        await admit(kernel, everything + ask_of.format("legal"))
        # It is claimed, and is asked about anew.
        again = await waiting_anew(kernel, wait.action_id, wait.approval_id)
        over.set()
        await until(lambda: not len(kernel.engine.runs))
        await vote(kernel, again, CARL)
        await work_off(kernel)
        child = await read(kernel, wait.action_id)
        assert (ActionState.CANCELLED, "PARENT_ENDED", []) == (child.state, child.cause, entered)


async def submitted(kernel: Kernel, calls: list[Call]) -> list[Action]:
    results = await submit_batch(kernel, [(call, Submission()) for call in calls])
    return [result.action for result in results if not isinstance(result, PlacetError)]


async def test_items_of_a_batch_wait_each_for_itself(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance")
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        calls = [call_of("work.unsafe", {"order": str(number % 2)}, f"k{number % 2}") for number in range(3)]
        first, second, again = await submitted(kernel, calls)
        assert [ActionState.WAITING] * 2 == [first.state, second.state]
        (later,) = await submitted(kernel, calls[:1])
        assert first.waits
        assert first.waits == later.waits
        assert first.action_id == again.action_id
        await vote(kernel, second.approval_id or "")
        await work_off(kernel)
        assert (1, "SUCCEEDED") == (shop.effects, (await read(kernel, second.action_id)).state)


async def test_what_is_tried_again_is_asked_again(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance; ttl=2h", attempts_max=1)
    shop.gate.set()

    async def fail(context: Context) -> None:
        raise Failure("declined", "no", effect="not_done")

    shop.script = fail
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        first = await ask(kernel, capability="work.idempotent")
        await vote(kernel, first)
        await work_off(kernel)
        action = (await look(kernel, first)).action
        assert ActionState.FAILED is action.state

        async def attempts_of(_: Action) -> int:
            return 1

        command = RedriveCommand(action_ids=(action.action_id,), reason="card is new", request="r")
        for _ in range(2):
            (done,) = await redrive(kernel.journal, BOB, command, attempts_of)
            assert (True, ActionState.WAITING) == (done.changed, done.state)
        again = await read(kernel, action.action_id)
        second = await look(kernel, again.approval_id or "")
        assert (first, ApprovalState.PENDING) == (second.approval.predecessor_id, second.approval.state)
        assert timedelta(hours=2) == timedelta(
            microseconds=second.approval.expire_time_us - second.approval.create_time_us
        )
        # The spent one lets nothing begin.
        await work_off(kernel)
        assert ActionState.WAITING is (await read(kernel, action.action_id)).state
        shop.script = None
        await vote(kernel, second.approval.approval_id)
        await work_off(kernel)
        assert ActionState.SUCCEEDED is (await read(kernel, action.action_id)).state
        told = await facts(kernel, action.action_id)
        assert ["settled", "redriven", "waiting", "approval_decided"] == told[-6:-2]


async def test_what_was_denied_is_never_tried_again(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance")
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        denied = await vote(kernel, approval_id, verdict=DENY)

        async def attempts_of(_: Action) -> int:
            return 1

        command = RedriveCommand(action_ids=(denied.action.action_id,))
        (refused,) = await redrive(kernel.journal, BOB, command, attempts_of)
        assert (False, "not_allowed") == (refused.changed, refused.refused_rule)
