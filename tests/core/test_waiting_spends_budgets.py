"""Time that people take is nobody's budget: what is asked anew, and allowed, has all that it had before."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet_server.core.kernel import Kernel
from placet_server.core.publication.promote import promote
from placet_server.core.recovery.rescue import close_unwanted, rescue
from placet_server.model.action import OnCallerGone
from placet_server.model.lifecycle import ActionState
from placet_server.store.clock import FixedClock
from tests.core.kernels import QUEUE, declare_dead, only_action, open_kernel, put, read, run, work_off
from tests.core.people import vote
from tests.core.policies import admit
from tests.core.workshop import Workshop
from tests.postgres import Database

ALL = '@id("all") permit (principal, action, resource);\n'
ASK = '@id("ask") @approval("1 of role:finance; ttl=9d") permit (principal, action, resource);\n'
START = datetime(2030, 1, 1, tzinfo=UTC)
DAYS = timedelta(days=8)


class Shop:
    """Fails for the moment as often as it is told to."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.failures = 0
        self.app = App("shop")

        @self.app.tool(
            "shop.refund",
            "idempotent",
            attempts_max=9,
            retry_delay=1,
            retry_delay_max=1,
            retry_elapsed_max=10,
            queue_delay_max=60.0,
        )
        async def refund(context: Context, amount: int) -> int:
            self.attempts.append(context.attempt)
            if self.failures:
                self.failures -= 1
                raise Failure("busy", category="temporary", effect="not_done")
            return amount


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(START)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def kernel(database: Database, shop: Shop, clock: FixedClock) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        await admit(kernel, ALL)
        yield kernel


async def waits_anew(kernel: Kernel, action_id: str) -> str:
    """What is asked, once its policies have changed and a server has come to it."""
    await admit(kernel, ASK)
    await promote(kernel.journal)
    await work_off(kernel)
    waiting = await read(kernel, action_id)
    assert ActionState.WAITING is waiting.state
    assert waiting.approval_id is not None
    return waiting.approval_id


async def test_the_time_before_the_first_attempt_is_no_retry_budget(
    kernel: Kernel, shop: Shop, clock: FixedClock
) -> None:
    action_id = (await put(kernel, "shop.refund", {"amount": 5}, "k")).action.action_id
    approval_id = await waits_anew(kernel, action_id)
    waiting = await read(kernel, action_id)
    assert (None, None) == (waiting.budget_time_us, waiting.effect_key_expire_time_us)
    clock.advance(DAYS)
    await vote(kernel, approval_id)
    await work_off(kernel)
    done = await read(kernel, action_id)
    assert (ActionState.SUCCEEDED, [2]) == (done.state, shop.attempts)
    now = (START + DAYS).timestamp() * 1_000_000
    assert now == done.budget_time_us
    assert (done.effect_key_expire_time_us or 0) > now


async def test_the_time_between_attempts_is_no_retry_budget_and_the_rest_of_it_is_left(
    kernel: Kernel, shop: Shop, clock: FixedClock
) -> None:
    shop.failures = 99
    action_id = (await put(kernel, "shop.refund", {"amount": 5}, "k")).action.action_id
    await work_off(kernel)
    clock.advance(timedelta(seconds=2))
    approval_id = await waits_anew(kernel, action_id)
    clock.advance(DAYS)
    await vote(kernel, approval_id)
    begun = START + DAYS
    assert begun.timestamp() * 1_000_000 == (await read(kernel, action_id)).budget_time_us
    for _ in range(20):
        await promote(kernel.journal)
        await work_off(kernel)
        clock.advance(timedelta(seconds=2))
        await close_unwanted(kernel.journal)
    ended = await read(kernel, action_id)
    assert (ActionState.EXHAUSTED, "RETRY_BUDGET") == (ended.state, ended.reason)
    # Eight of its ten seconds, an attempt each two.
    assert [1, 3, 4, 5, 6] == shop.attempts


async def test_what_was_executed_and_lost_waits_as_what_was_submitted_does(
    database: Database, clock: FixedClock
) -> None:
    workshop = Workshop()
    workshop.touch = False
    async with open_kernel(database.dsn, workshop.app, clock=clock, queue=QUEUE) as kernel:
        async with open_kernel(database.dsn, workshop.app, clock=clock) as mortal:
            call = asyncio.create_task(
                run(mortal, "work.unsafe_marked", {"order": "7"}, "k", time_left_seconds=3600.0)
            )
            await workshop.began.wait()
            await declare_dead(mortal)
            assert 1 == (await rescue(kernel.journal)).requeued
            call.cancel()
        action_id = (await only_action(kernel)).action_id
        clock.advance(timedelta(seconds=11))
        approval_id = await waits_anew(kernel, action_id)
        clock.advance(DAYS)
        await vote(kernel, approval_id)
        workshop.gate.set()
        await work_off(kernel)
        done = await read(kernel, action_id)
        assert (ActionState.SUCCEEDED, 1) == (done.state, workshop.effects)
        assert (True, OnCallerGone.DETACH) == (done.is_submitted, done.on_caller_gone)
