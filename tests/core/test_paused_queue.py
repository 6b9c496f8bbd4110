"""Nothing of a paused queue begins, whoever asks; what runs goes on, what comes is stored, none of it is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet_server.core.admission.dispatch import QueueSettings
from placet_server.core.execution.pause import pause_queue, resume_queue
from placet_server.core.kernel import Kernel
from placet_server.core.publication.line import line_of
from placet_server.core.publication.promote import promote
from placet_server.core.recovery.redrive import list_queues
from placet_server.core.recovery.rescue import close_unwanted
from placet_server.loops.queue_runner import QueueRunner
from placet_server.model.action import Submission
from placet_server.model.ending_errors import QueueDelayExhausted
from placet_server.model.errors import Overloaded, WaitExpired
from placet_server.model.lifecycle import ActionState
from placet_server.store import queue_pause
from placet_server.store.clock import FixedClock
from placet_server.store.queue import QueueDepth
from tests.core.kernels import (
    ALICE,
    EVE,
    QUEUE,
    dispatch,
    open_kernel,
    places,
    put,
    read,
    run,
    states,
    until,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)
SLOW = Submission(queue="slow")


async def pause(
    kernel: Kernel, name: str = "slow", tenant: str | None = "acme", reason: str = "r"
) -> QueueDepth:
    return await pause_queue(kernel.journal, ALICE, name, tenant=tenant, reason=reason)


async def resume(kernel: Kernel, name: str = "slow", tenant: str | None = "acme") -> QueueDepth:
    return await resume_queue(kernel.journal, name, tenant=tenant)


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_what_waits_is_not_begun_until_the_queue_is_resumed(
    database: Database, tenant: str | None
) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "before", place=SLOW)
        paused = await pause(kernel, tenant=tenant)
        assert ("slow", 1, "r") == (paused.name, paused.ready, paused.paused_reason)
        assert paused.pause_time_us is not None
        await put(kernel, "work.unsafe", {}, "after", place=SLOW)
        await put(kernel, "work.unsafe", {}, "beside", place=Submission(queue="fast"))
        await work_off(kernel)
        assert ["QUEUED", "QUEUED", "SUCCEEDED"] == sorted(await states(kernel))
        assert (2, None) == ((resumed := await resume(kernel, tenant=tenant)).ready, resumed.pause_time_us)
        await work_off(kernel)
        assert ["SUCCEEDED"] * 3 == await states(kernel)
        assert [1, 1, 1] == shop.attempts


async def test_what_runs_when_it_is_paused_ends_and_is_not_tried_again_before(database: Database) -> None:
    app, gate, attempts = App("shop"), asyncio.Event(), list[int]()

    @app.tool("work.stumble", "idempotent", attempts_max=3, retry_delay=0.001)
    async def stumble(context: Context) -> str:
        attempts.append(context.attempt)
        await gate.wait()
        if context.attempt == 1:
            raise Failure("busy", category="temporary")
        return "done"

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        submitted = await put(kernel, "work.stumble", {}, "k", place=SLOW)
        await dispatch(kernel)
        await until(lambda: attempts)
        await pause(kernel)
        gate.set()
        await until(lambda: not len(kernel.engine.runs))
        await asyncio.sleep(0.05)
        for _ in range(3):
            await promote(kernel.journal)
            await work_off(kernel)
        action = await read(kernel, submitted.action.action_id)
        assert (ActionState.QUEUED, 1, [1]) == (action.state, action.attempt, attempts)
        await resume(kernel)
        await work_off(kernel)
        assert (ActionState.SUCCEEDED, [1, 2]) == ((await read(kernel, action.action_id)).state, attempts)


async def test_what_falls_due_meanwhile_is_run_after_the_resume(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "k", place=Submission(queue="slow", delay_seconds=60))
        assert (0, 1) == ((depth := await pause(kernel)).ready, depth.delayed)
        clock.advance(timedelta(seconds=61))
        await promote(kernel.journal)
        await work_off(kernel)
        assert ["QUEUED"] == await states(kernel)
        (depth,) = await list_queues(kernel.journal, tenant="acme")
        assert (1, 0, True) == (depth.ready, depth.delayed, depth.pause_time_us is not None)
        await resume(kernel)
        await work_off(kernel)
        assert ["SUCCEEDED"] == await states(kernel)


async def test_paused_resumed_and_paused_again_is_paused(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        first = await pause(kernel, reason="one")
        again = await pause(kernel, reason="two")
        assert ("two", first.pause_time_us) == (again.paused_reason, again.pause_time_us)
        await resume(kernel)
        # Again: an answer may have been lost.
        assert (0, None, "") == ((d := await resume(kernel)).ready, d.pause_time_us, d.paused_reason)
        assert [] == await list_queues(kernel.journal, tenant="acme")
        await put(kernel, "work.unsafe", {}, "k", place=SLOW)
        third = await pause(kernel, reason="three")
        assert (third.pause_time_us or 0) > (first.pause_time_us or 0)
        await work_off(kernel)
        assert ["QUEUED"] == await states(kernel)
        await resume(kernel)
        await work_off(kernel)
        assert ["SUCCEEDED"] == await states(kernel)


@pytest.mark.parametrize("concurrency_max", [None, 5])
async def test_a_line_that_is_known_when_it_is_paused_is_not_begun(
    database: Database, concurrency_max: int | None
) -> None:
    shop = Workshop(concurrency_max=concurrency_max)
    async with open_kernel(database.dsn, shop.app, queue=QueueSettings(poll_seconds=60.0)) as kernel:
        assert kernel.dispatcher is not None
        await kernel.dispatcher.run_once()
        waits = (await put(kernel, "work.unsafe", {}, "k", place=SLOW)).action
        await pause(kernel)
        await kernel.dispatcher.run_once([line_of(waits)])
        assert ["QUEUED"] == await states(kernel)
    assert [] == shop.attempts


async def test_a_resend_does_not_run_what_is_paused(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "k", place=SLOW)
        await pause(kernel)
        assert (await put(kernel, "work.unsafe", {}, "k", place=SLOW)).attached
        with pytest.raises(WaitExpired):
            await run(kernel, "work.unsafe", {}, "k", time_left_seconds=0.3)
        assert [] == shop.attempts
        # What nobody has submitted is in no queue.
        await run(kernel, "work.unsafe", {}, "other")
        waiting = asyncio.ensure_future(run(kernel, "work.unsafe", {}, "k", time_left_seconds=10))
        await asyncio.sleep(0.1)
        await resume(kernel)
        assert ActionState.SUCCEEDED is (await waiting).action.state
        assert [1, 1] == shop.attempts


async def test_a_pause_is_its_tenants_and_that_of_all_is_beside_it(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "k", place=SLOW)
        await put(kernel, "work.unsafe", {}, "k", place=SLOW, caller=EVE)
        await pause(kernel, reason="ours")
        await work_off(kernel)
        assert (["QUEUED"], ["SUCCEEDED"]) == (await states(kernel), await states(kernel, "evil"))
        assert [] == await list_queues(kernel.journal, tenant="evil")
        assert "everybody's" == (await pause(kernel, tenant=None, reason="everybody's")).paused_reason
        (seen,) = await list_queues(kernel.journal, tenant="evil")
        assert ("everybody's", 0) == (seen.paused_reason, seen.ready)
        # The tenant's own goes, the other one stays; and the other way round.
        assert "everybody's" == (await resume(kernel)).paused_reason
        await work_off(kernel)
        assert ["QUEUED"] == await states(kernel)
        await pause(kernel, reason="ours")
        assert None is (await resume(kernel, tenant=None)).pause_time_us
        await work_off(kernel)
        assert ["QUEUED"] == await states(kernel)
        await resume(kernel)
        await work_off(kernel)
        assert ["SUCCEEDED"] == await states(kernel)


async def test_other_lines_are_served_beside_many_paused_ones(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    few = QueueSettings(poll_seconds=0.0, lines_max=2, slots_max=2)
    async with open_kernel(database.dsn, shop.app, queue=few) as kernel:
        for number in range(12):
            await put(kernel, "work.unsafe", {}, f"k{number}", place=Submission(queue=f"q{number:02}"))
            if number < 11:
                await pause(kernel, f"q{number:02}")
        await work_off(kernel)
        assert ["QUEUED"] * 11 + ["SUCCEEDED"] == await states(kernel)


async def test_what_must_be_begun_in_time_is_given_up_though_paused(database: Database) -> None:
    shop = Workshop(queue_delay_max=60)
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "k", place=SLOW)
        await pause(kernel)
        clock.advance(timedelta(seconds=61))
        assert 1 == await close_unwanted(kernel.journal)
        with pytest.raises(QueueDelayExhausted):
            await run(kernel, "work.unsafe", {}, "k")
        assert [] == (await places(kernel))["queue_ready"]


async def test_pauses_of_a_tenant_are_counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_pause, "PAUSES_MAX", 2)
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        await pause(kernel, "a")
        await pause(kernel, "b")
        await pause(kernel, "b", reason="again")
        with pytest.raises(Overloaded):
            await pause(kernel, "c")
        await pause(kernel, "c", tenant=None)
        await resume(kernel, "a")
        await pause(kernel, "c")


async def test_a_resume_wakes_the_runner(database: Database) -> None:
    """Which looks once a minute here."""
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QueueSettings(poll_seconds=60.0)) as kernel:
        await put(kernel, "work.unsafe", {}, "k", place=SLOW)
        await pause(kernel)
        assert kernel.dispatcher is not None
        kernel.engine.supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())
        await until(lambda: kernel.dispatcher.look_seconds() > 0)
        assert [] == shop.attempts
        await resume(kernel)
        await until(lambda: shop.effects)
