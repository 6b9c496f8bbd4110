"""Between a claim and the handler much may be lost: what nobody consumed has not begun, and leaves nothing open."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from placet_server.core.admission.begin import begin
from placet_server.core.decision.expire import pass_time
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.decision import ApprovalState
from placet_server.model.decision_errors import ApprovalRevoked
from placet_server.model.errors import StateConflict
from placet_server.model.lifecycle import ActionState
from tests.core.kernels import (
    ALICE,
    BOB,
    QUEUE,
    claimed,
    declare_dead,
    open_kernel,
    read,
    run,
    states,
    work_off,
)
from tests.core.people import ask, facts, look, take_back, vote
from tests.core.workshop import Workshop
from tests.postgres import Database

CLASSES = ("work.unsafe", "work.idempotent", "work.read")


@pytest.fixture
def shop() -> Workshop:
    shop = Workshop(approval="1 of role:finance")
    shop.gate.set()
    return shop


@pytest.fixture
async def kernel(database: Database, shop: Workshop) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        yield kernel


async def granted(kernel: Kernel, key: str = "k", capability: str = "work.unsafe") -> tuple[str, str]:
    """An approval, and its action."""
    approval_id = await ask(kernel, key, capability)
    return approval_id, (await vote(kernel, approval_id)).action.action_id


async def expire(kernel: Kernel) -> None:
    async with kernel.journal.pool.connection() as connection:
        await connection.execute(
            "update approvals set expire_time = now(), next_time = now() where next_time is not null"
        )
    await pass_time(kernel.journal)


async def test_what_was_lost_before_it_began_is_not_done_and_may_end_without_a_yes(
    database: Database, kernel: Kernel, shop: Workshop
) -> None:
    ends: list[Any] = [
        (lambda each: take_back(kernel, each[0]), ApprovalState.REVOKED),
        (lambda each: cancel_action(kernel.engine, ALICE, each[1], ""), ApprovalState.WITHDRAWN),
        (lambda _: expire(kernel), ApprovalState.EXPIRED),
    ]
    asked: list[tuple[str, str]] = []
    async with open_kernel(database.dsn, shop.app) as dead:
        for capability in CLASSES:
            for _ in ends:
                asked.append(await granted(kernel, f"k{len(asked)}", capability))
                await claimed(dead, asked[-1][1])
        await declare_dead(dead)
    assert len(asked) == (await rescue(kernel.journal)).requeued
    for number, each in enumerate(asked):
        assert "UNKNOWN" != (await read(kernel, each[1])).effect
        if number % 3 < 2:
            await ends[number % 3][0](each)
    await ends[2][0](None)
    for number, each in enumerate(asked):
        ended = await look(kernel, each[0])
        wanted = ActionState.CANCELLED if number % 3 == 1 else ActionState.DENIED
        assert (wanted, ends[number % 3][1]) == (ended.action.state, ended.approval.state)
    await work_off(kernel)
    assert 0 == shop.effects


async def test_who_has_lost_the_lease_does_not_begin_under_a_yes_that_is_gone(
    database: Database, kernel: Kernel, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as frozen:
        approval_id, action_id = await granted(kernel)
        running = await claimed(frozen, action_id)
        await declare_dead(frozen)
        await rescue(kernel.journal)
        await take_back(kernel, approval_id)
        assert await begin(frozen.engine, running, running.input_json or "") is None
    assert ["DENIED"] == await states(kernel)


async def test_what_was_lost_after_it_began_is_in_doubt_and_does_not_begin_again(
    database: Database, kernel: Kernel, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as dead:
        _, action_id = await granted(kernel)
        running = await claimed(dead, action_id)
        assert await begin(dead.engine, running, running.input_json or "") is not None
        await declare_dead(dead)
    await rescue(kernel.journal)
    await work_off(kernel)
    assert (["AMBIGUOUS"], 0) == (await states(kernel), shop.effects)


async def test_what_waits_is_claimed_by_nobody_though_it_stood_in_line(
    kernel: Kernel, shop: Workshop
) -> None:
    approval_id = await ask(kernel)
    waiting = (await look(kernel, approval_id)).action
    with pytest.raises(AssertionError):
        await claimed(kernel, waiting.action_id)
    async with kernel.journal.pool.connection() as connection:
        await connection.execute(
            """insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time)
            select tenant, action_id, queue, capability, version, priority, ready_time from actions"""
        )
    await work_off(kernel)
    assert (["WAITING"], 0) == (await states(kernel), shop.effects)


async def test_of_two_who_were_given_it_only_the_later_begins(
    database: Database, kernel: Kernel, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as frozen:
        _, action_id = await granted(kernel)
        first = await claimed(frozen, action_id)
        await declare_dead(frozen)
        await rescue(kernel.journal)
        again = await claimed(kernel, action_id)
        assert await begin(frozen.engine, first, first.input_json or "") is None
        assert await begin(kernel.engine, again, again.input_json or "") is not None


async def test_a_yes_taken_back_while_the_start_waits_is_named_as_the_reason(kernel: Kernel) -> None:
    _, action_id = await granted(kernel)
    running = await claimed(kernel, action_id)
    async with kernel.journal.pool.tx() as connection:
        await connection.execute("select from actions for update")
        starting = asyncio.create_task(begin(kernel.engine, running, running.input_json or ""))
        async with asyncio.timeout(5):
            while not await connection.fetchval(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            ):
                await connection.execute("select pg_stat_clear_snapshot()")
        await connection.execute("update approvals set state = 'REVOKED', next_time = null")
    assert await starting is None
    assert "APPROVAL_REVOKED" == (await read(kernel, action_id)).reason
    with pytest.raises(ApprovalRevoked):
        await run(kernel, "work.unsafe", {"order": "1"}, "k")


@pytest.mark.parametrize("is_found", [True, False])
async def test_an_end_without_a_beginning_leaves_nothing_open(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    approval_id, action_id = await granted(kernel)
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("""update actions set input = '{"order":"2"}'""")
    if not is_found:
        # As if the server had died between the two.
        monkeypatch.setattr("placet_server.core.admission.begin.end_left_over", _nothing)
    await work_off(kernel)
    ended = await look(kernel, approval_id)
    state = ApprovalState.WITHDRAWN if is_found else ApprovalState.GRANTED
    assert (ActionState.FAILED, state) == (ended.action.state, ended.approval.state)
    with pytest.raises(StateConflict):
        await take_back(kernel, approval_id)
    assert "settled" == (await facts(kernel, action_id))[-1]

    async def one(_: Action) -> int:
        return 1

    (again,) = await redrive(kernel.journal, BOB, RedriveCommand(action_ids=(action_id,)), one)
    assert (True, ActionState.WAITING) == (again.changed, again.state)
    assert ApprovalState.WITHDRAWN is (await look(kernel, approval_id)).approval.state


async def _nothing(*_: object) -> None:
    return None


async def test_what_is_left_open_by_an_end_is_found_by_the_loop(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet_server.core.admission.begin.end_left_over", _nothing)
    approval_id, _ = await granted(kernel)
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("""update actions set input = '{"order":"2"}'""")
        await work_off(kernel)
        due = "select extract(epoch from next_time - now())::float from approvals"
        assert 61 > await connection.fetchval(due)
        await connection.execute("update approvals set next_time = now()")
    await pass_time(kernel.journal)
    assert ApprovalState.WITHDRAWN is (await look(kernel, approval_id)).approval.state


async def test_one_that_cannot_be_looked_at_keeps_no_other_from_expiring(kernel: Kernel) -> None:
    broken, _ = await granted(kernel, "k1")
    fine, _ = await granted(kernel, "k2")
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update approvals set next_time = now(), expire_time = now()")
        await connection.execute(
            "update approvals set terms = '?', next_time = next_time - interval '1 second' where approval_id = $1",
            broken,
        )
    assert 1 == (await pass_time(kernel.journal)).expired
    assert 0 == (await pass_time(kernel.journal)).expired
    assert ApprovalState.EXPIRED is (await look(kernel, fine)).approval.state
