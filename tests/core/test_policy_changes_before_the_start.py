"""Policies that change between an action's admission and its start: what decided is what counts, and nothing else."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet_server.core.admission.begin import begin
from placet_server.core.decision.policy_explain import explain
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import get_action
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.approval_text import format_terms
from placet_server.model.decision import ApprovalState
from placet_server.model.decision_errors import ApprovalRequired
from placet_server.model.lifecycle import ActionState
from placet_server.model.policy_errors import PolicyRefused
from placet_server.store import event as events
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    ALICE,
    QUEUE,
    claimed,
    declare_dead,
    open_kernel,
    places,
    put,
    read,
    run,
    work_off,
)
from tests.core.people import ANNA, CARL, look, take_back, vote
from tests.core.policies import admit
from tests.postgres import Database

ALL = '@id("all") permit (principal, action, resource);\n'
ASK = '@id("ask") @approval("1 of role:finance") permit (principal, action, resource);\n'
ASK_OF_LEGAL = ASK.replace("role:finance", "role:legal")
FORBID = '@id("no") forbid (principal, action == Action::"shop.refund", resource);\n'
UNRELATED = '@id("other") forbid (principal, action == Action::"shop.look", resource);\n'


class Shop:
    def __init__(self) -> None:
        self.effects = 0
        self.failures: list[Failure] = []
        self.app = App("shop")

        @self.app.tool("shop.refund", "idempotent", effect_marked=True)
        async def refund(context: Context, amount: int) -> int:
            if self.failures:
                raise self.failures.pop()
            await context.effect()
            self.effects += 1
            return amount

        @self.app.tool("shop.pay", "idempotent", approval="1 of role:finance", attempts_max=1)
        async def pay(amount: int) -> int:
            self.effects += 1
            return amount

        @self.app.tool("shop.look", "read")
        async def look() -> str:
            return "seen"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def kernel(database: Database, shop: Shop) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        yield kernel


async def ask(kernel: Kernel) -> tuple[Action, str]:
    """What waits for people, and its approval."""
    with pytest.raises(ApprovalRequired) as caught:
        await run(kernel, "shop.refund", {"amount": 5}, "k")
    outcome = caught.value.outcome
    assert outcome is not None
    return await read(kernel, outcome.action_id), caught.value.approval_id


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(ASK + UNRELATED, id="another policy"),
        pytest.param("// for the auditors\n" + ASK, id="comment"),
        pytest.param(ASK.replace('@id("ask")', '@id("ask") @description("why")'), id="description"),
        pytest.param(UNRELATED + ASK, id="order"),
    ],
)
async def test_what_did_not_decide_voids_no_approval(kernel: Kernel, shop: Shop, after: str) -> None:
    await admit(kernel, ASK)
    action, approval_id = await ask(kernel)
    await admit(kernel, after)
    await vote(kernel, approval_id, ANNA)
    await work_off(kernel)
    assert (ActionState.SUCCEEDED, 1) == ((await read(kernel, action.action_id)).state, shop.effects)


async def test_a_policy_that_decided_and_has_changed_asks_again(kernel: Kernel, shop: Shop) -> None:
    await admit(kernel, ASK)
    action, first = await ask(kernel)
    await vote(kernel, first, ANNA)
    await admit(kernel, ASK.replace("permit (principal", "permit (principal is User") + ALL)
    await work_off(kernel)
    again = await get_action(kernel.journal, ALICE, action.action_id, full=False)
    (wait,) = again.waits
    assert (ActionState.WAITING, None, 0) == (again.state, again.lease_id, shop.effects)
    asked = (await look(kernel, wait.approval_id)).approval
    assert first == asked.predecessor_id
    assert "policy ask has changed" in asked.difference
    assert "policy all decides now" in asked.difference
    assert ApprovalState.WITHDRAWN is (await look(kernel, first)).approval.state
    assert [] == (await places(kernel))["queue_ready"]
    await vote(kernel, wait.approval_id, ANNA)
    await work_off(kernel)
    done = await read(kernel, action.action_id)
    assert (ActionState.SUCCEEDED, 1, 2) == (done.state, shop.effects, done.attempt)
    async with kernel.journal.pool.connection() as connection:
        told = [each.type for each in await events.list_receipts(connection, "acme", action.action_id)]
    asked_once = ["waiting", "approval_decided", "attempt_started"]
    assert [*asked_once, "approval_ended", *asked_once] == told[1:-2]


async def test_a_yes_that_is_too_late_is_not_asked_for_anew(database: Database, shop: Shop) -> None:
    clock = FixedClock(datetime(2030, 1, 1, tzinfo=UTC))
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        await admit(kernel, ASK)
        action, approval_id = await ask(kernel)
        await vote(kernel, approval_id, ANNA)
        await admit(kernel, ASK_OF_LEGAL)
        clock.advance(timedelta(days=1))
        await work_off(kernel)
        ended = await read(kernel, action.action_id)
        assert (ActionState.DENIED, "APPROVAL_EXPIRED", 0) == (ended.state, ended.reason, shop.effects)


async def test_what_asks_for_other_people_asks_them(kernel: Kernel, shop: Shop) -> None:
    await admit(kernel, ASK)
    action, first = await ask(kernel)
    await vote(kernel, first, ANNA)
    await admit(kernel, ASK_OF_LEGAL)
    await work_off(kernel)
    (wait,) = (await get_action(kernel.journal, ALICE, action.action_id, full=False)).waits
    told = (await look(kernel, wait.approval_id)).approval.difference
    assert "policies ask for 1 of role:legal; ttl=1d, before for 1 of role:finance; ttl=1d" == told
    assert 0 == shop.effects


async def test_what_the_contract_asks_for_is_asked_besides_at_first_and_anew(
    kernel: Kernel, shop: Shop
) -> None:
    await admit(kernel, ASK_OF_LEGAL)
    with pytest.raises(ApprovalRequired) as caught:
        await run(kernel, "shop.pay", {"amount": 5}, "k")
    first = await look(kernel, caught.value.approval_id)
    assert "1 of role:finance and 1 of role:legal; ttl=1d" == format_terms(first.approval.terms)
    for caller in (ANNA, CARL):
        await vote(kernel, first.approval.approval_id, caller)
    await admit(kernel, ASK.replace("role:finance", "role:ceo"))
    await work_off(kernel)
    (wait,) = (await get_action(kernel.journal, ALICE, first.action.action_id, full=False)).waits
    again = (await look(kernel, wait.approval_id)).approval
    assert "1 of role:ceo and 1 of role:finance; ttl=1d" == format_terms(again.terms)
    assert 0 == shop.effects
    await vote(kernel, again.approval_id, replace(ANNA, roles=("ceo", "finance")))
    await work_off(kernel)
    done = await read(kernel, again.action_id)
    # To have asked anew was no attempt.
    assert (ActionState.SUCCEEDED, 1, 2, 2) == (done.state, shop.effects, done.attempt, done.attempts_max)


async def test_who_has_lost_the_lease_does_not_ask_about_what_another_does(
    kernel: Kernel, database: Database, shop: Shop
) -> None:
    async with open_kernel(database.dsn, shop.app) as frozen:
        action = (await put(kernel, "shop.refund", {"amount": 5}, "k")).action
        first = await claimed(frozen, action.action_id)
        await declare_dead(frozen)
        await rescue(kernel.journal)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update actions set ready_time = create_time")
        again = await claimed(kernel, action.action_id)
        await admit(kernel, ASK)
        assert await begin(frozen.engine, first, first.input_json or "") is None
        now = await read(kernel, action.action_id)
        assert (ActionState.RUNNING, again.lease_id, None) == (now.state, now.lease_id, now.approval_id)


async def test_what_was_taken_back_is_not_asked_anew(kernel: Kernel) -> None:
    await admit(kernel, ASK)
    action, approval_id = await ask(kernel)
    await vote(kernel, approval_id, ANNA)
    running = await claimed(kernel, action.action_id)
    await take_back(kernel, approval_id, ANNA)
    await admit(kernel, ASK_OF_LEGAL)
    assert await begin(kernel.engine, running, running.input_json or "") is None
    ended = await read(kernel, action.action_id)
    assert (ActionState.DENIED, "APPROVAL_REVOKED") == (ended.state, ended.reason)


async def test_what_needs_people_only_since_it_was_submitted_waits_for_them(
    kernel: Kernel, shop: Shop
) -> None:
    action = (await put(kernel, "shop.refund", {"amount": 5}, "k")).action
    await admit(kernel, ASK)
    await work_off(kernel)
    again = await get_action(kernel.journal, ALICE, action.action_id, full=False)
    (wait,) = again.waits
    assert (ActionState.WAITING, 0) == (again.state, shop.effects)
    assert (await look(kernel, wait.approval_id)).approval.predecessor_id is None
    await vote(kernel, wait.approval_id, ANNA)
    await work_off(kernel)
    assert (ActionState.SUCCEEDED, 1) == ((await read(kernel, action.action_id)).state, shop.effects)


async def test_what_is_not_permitted_any_more_is_refused_and_has_not_begun(
    kernel: Kernel, shop: Shop
) -> None:
    for cedar, named in ((ALL + FORBID, "no"), (UNRELATED, None)):
        key = str(uuid.uuid4())
        await admit(kernel, ALL)
        action = (await put(kernel, "shop.refund", {"amount": 5}, key)).action
        await admit(kernel, cedar)
        await work_off(kernel)
        ended = await read(kernel, action.action_id)
        assert (ActionState.REFUSED, "POLICY_REFUSED", named) == (ended.state, ended.reason, ended.cause)
        assert 0 == shop.effects
        why = await explain(kernel.journal.pool, kernel.policies, ALICE, action.action_id, with_texts=False)
        assert why.verdict is not None
        assert (True, False, named or "") == (why.is_action, why.verdict.allowed, why.verdict.names)
        await admit(kernel, ALL)
        # Its key keeps that end.
        with pytest.raises(PolicyRefused):
            await run(kernel, "shop.refund", {"amount": 5}, key)


async def test_an_approval_that_was_used_covers_every_attempt_but_not_what_is_forbidden(
    kernel: Kernel, shop: Shop
) -> None:
    await admit(kernel, ASK)
    for after, state, effects in ((ASK_OF_LEGAL, "SUCCEEDED", 1), (ASK + FORBID, "REFUSED", 1)):
        key = str(uuid.uuid4())
        await admit(kernel, ASK)
        with pytest.raises(ApprovalRequired) as caught:
            await run(kernel, "shop.refund", {"amount": 5}, key)
        approval_id = caught.value.approval_id
        await vote(kernel, approval_id, ANNA)
        shop.failures = [Failure("busy", category="temporary", effect="not_done")]
        await work_off(kernel)
        action_id = (await look(kernel, approval_id)).action.action_id
        assert (ActionState.QUEUED, 1) == ((again := await read(kernel, action_id)).state, again.attempt)
        await admit(kernel, after)
        async with kernel.journal.pool.connection() as connection:
            for table in ("actions", "queue_delayed", "queue_ready"):
                await connection.execute(
                    f"update {table} set ready_time = now() where action_id = $1", action_id
                )
            await connection.execute(
                "insert into queue_ready select * from queue_delayed where action_id = $1", action_id
            )
            await connection.execute("delete from queue_delayed where action_id = $1", action_id)
        await work_off(kernel)
        assert (state, effects) == ((await read(kernel, action_id)).state, shop.effects)


async def test_a_cancel_ends_what_could_neither_begin_nor_wait(kernel: Kernel, shop: Shop) -> None:
    action = (await put(kernel, "shop.refund", {"amount": 5}, "k")).action
    running = await claimed(kernel, action.action_id)
    await cancel_action(kernel.engine, ALICE, action.action_id, "not any more")
    await admit(kernel, ASK)
    assert kernel.engine.recheck is not None
    looked = await kernel.engine.recheck.look(running)
    assert not looked.may_begin
    assert looked.verdict is not None
    assert ActionState.CANCELLED is looked.verdict.state
    assert ActionState.RUNNING is (await read(kernel, action.action_id)).state
    assert 0 == shop.effects
