"""The server tries submitted work again as often and as long as the contract says, never twice at a time, never against
a cancel; and what is given up says why.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from placet.app import App
from placet.context import Context, SyncContext
from placet.failure import Failure
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.outcome import error_of
from placet_server.core.publication.promote import promote
from placet_server.core.recovery.rescue import close_unwanted, rescue
from placet_server.model.ending_errors import RetryBudgetExhausted
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, FailureCategory
from placet_server.store import event as events
from placet_server.store.clock import FixedClock
from placet_server.telemetry.metric import Metrics
from placet_server.telemetry.observer import CountingObserver
from tests.core.kernels import (
    ALICE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
    places,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)
NOTHING: dict[str, list[str]] = {"queue_ready": [], "queue_delayed": [], "dead_letters": []}
CAPABILITIES = ["work.read", "work.idempotent", "work.unsafe_marked"]


async def busy(context: Context) -> Any:
    raise Failure("busy", "try later", category="temporary", effect="not_done")


async def later(kernel: Kernel, clock: FixedClock, seconds: float) -> None:
    """So much time passes, and whoever is due by then runs."""
    clock.advance(timedelta(seconds=seconds))
    await promote(kernel.journal)
    await work_off(kernel)


async def told(kernel: Kernel, action_id: str) -> list[tuple[str, dict[str, Any]]]:
    async with kernel.journal.pool.connection() as connection:
        receipts = await events.list_receipts(connection, "acme", action_id)
    return [(receipt.type, orjson.loads(receipt.body)) for receipt in receipts]


@pytest.mark.parametrize("capability", ["work.read", "work.idempotent"])
async def test_what_fails_for_the_moment_is_tried_again_and_its_end_tells_the_last_failure(
    database: Database, capability: str
) -> None:
    shop, clock = Workshop(), FixedClock(START)
    shop.script = busy
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        action_id = (await put(kernel, capability, {}, "k")).action.action_id
        await work_off(kernel)
        waiting = await read(kernel, action_id)
        assert (ActionState.QUEUED, 1, "busy", "try later") == (
            waiting.state,
            waiting.attempt,
            waiting.failure_code,
            waiting.message,
        )
        assert NOTHING | {"queue_delayed": [action_id]} == await places(kernel)

        await later(kernel, clock, 0.7)
        assert [1] == shop.attempts
        await later(kernel, clock, 0.6)
        assert [1, 2] == shop.attempts
        await later(kernel, clock, 3.0)
        await later(kernel, clock, 3600.0)
        assert [1, 2, 3] == shop.attempts

        spent = await read(kernel, action_id)
        assert NOTHING | {"dead_letters": [action_id]} == await places(kernel)
        history = await told(kernel, action_id)
    assert (ActionState.EXHAUSTED, "RETRY_BUDGET", "busy", "try later", FailureCategory.TEMPORARY) == (
        spent.state,
        spent.reason,
        spent.failure_code,
        spent.message,
        spent.failure_category,
    )
    error = error_of(spent)
    assert isinstance(error, RetryBudgetExhausted)
    assert error.outcome is not None
    assert (3, "busy", "try later") == (error.attempts, error.outcome.failure_code, error.outcome.message)
    again = ["attempt_started", "requeued"]
    assert ["admitted", *again, *again, "attempt_started", "settled"] == [type_ for type_, _ in history]
    assert {"HANDLER_FAILED"} == {body["cause"] for type_, body in history if type_ == "requeued"}
    settled = history[-1][1]
    assert ("EXHAUSTED", "busy", "try later") == (
        settled["kind"],
        settled["failure_code"],
        settled["message"],
    )


async def test_an_attempt_that_succeeds_after_failures_leaves_no_trace_of_them_in_its_outcome(
    database: Database,
) -> None:
    shop, clock = Workshop(), FixedClock(START)
    shop.script = busy
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.unsafe_marked", {"order": "7"}, "k")).action.action_id
        shop.touch = False
        await work_off(kernel)
        shop.script, shop.touch = None, True
        shop.gate.set()
        await later(kernel, clock, 2.0)
        done = await read(kernel, action_id)
        assert NOTHING == await places(kernel)
    assert (ActionState.SUCCEEDED, {"order": "7"}, "", "", None) == (
        done.state,
        output(done),
        done.failure_code,
        done.message,
        done.failure_category,
    )
    assert (1, [1, 2]) == (shop.effects, shop.attempts)


async def test_what_failed_for_good_is_a_dead_letter_at_once(database: Database) -> None:
    shop = Workshop()

    async def declined(context: Context) -> Any:
        raise Failure("declined", "no", category="permanent", effect="not_done")

    shop.script = declined
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.idempotent", {}, "k")).action.action_id
        await work_off(kernel)
        assert NOTHING | {"dead_letters": [action_id]} == await places(kernel)
        failed = await read(kernel, action_id)
    assert (ActionState.FAILED, "declined", [1]) == (failed.state, failed.failure_code, shop.attempts)


async def test_a_cancel_during_the_pause_ends_it_without_another_attempt(database: Database) -> None:
    shop, clock = Workshop(), FixedClock(START)
    shop.script = busy
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.read", {}, "k")).action.action_id
        await work_off(kernel)
        cancelled = await cancel_action(kernel.engine, ALICE, action_id, "not needed")
        assert NOTHING == await places(kernel)
        await later(kernel, clock, 3600.0)
        stored = await read(kernel, action_id)
        history = await told(kernel, action_id)
    assert (ActionState.CANCELLED, "CANCELLED_BY_CALLER", [1]) == (
        cancelled.state,
        cancelled.reason,
        shop.attempts,
    )
    # The row says what the event says.
    assert cancelled == stored
    assert ("", "") == (history[-1][1]["failure_code"], stored.failure_code)


async def test_a_failure_that_comes_after_a_cancel_is_not_tried_again(database: Database) -> None:
    shop, clock = Workshop(), FixedClock(START)

    async def fail_when_stopped(context: Context) -> Any:
        try:
            await shop.gate.wait()
        except asyncio.CancelledError:
            raise Failure("busy", category="temporary", effect="not_done") from None

    shop.script = fail_when_stopped
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.read", {}, "k")).action.action_id
        await dispatch(kernel)
        await shop.began.wait()
        await cancel_action(kernel.engine, ALICE, action_id, "")
        await work_off(kernel)
        await later(kernel, clock, 3600.0)
        assert (ActionState.CANCELLED, [1]) == ((await read(kernel, action_id)).state, shop.attempts)
        assert NOTHING == await places(kernel)


async def test_attempts_that_take_too_long_are_tried_again_and_never_overlap(database: Database) -> None:
    """Neither those that go on for a while when told to stop, nor those that cannot be told."""
    shop, clock = Workshop(), FixedClock(START)
    running: list[int] = []
    most: list[int] = []

    async def linger(context: Context) -> Any:
        try:
            await shop.gate.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            raise

    shop.script = linger

    @shop.app.tool("work.deaf", "read")
    def deaf(context: SyncContext) -> str:
        running.append(context.attempt)
        most.append(len(running))
        time.sleep(0.15)
        running.remove(context.attempt)
        raise RuntimeError("too late")

    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        ids = [
            (await put(kernel, name, {}, "k", timeout_seconds=0.05)).action.action_id
            for name in ("work.read", "work.deaf")
        ]
        await work_off(kernel)
        for _ in range(3):
            await later(kernel, clock, 10.0)
        ended = [await read(kernel, action_id) for action_id in ids]
    assert [(ActionState.EXHAUSTED, "TIMEOUT", 3)] * 2 == [(a.state, a.cause, a.attempt) for a in ended]
    assert ([1, 2, 3], 1) == (shop.attempts, shop.at_once_max)
    assert [1, 1, 1] == most


async def test_nothing_is_begun_after_the_elapsed_budget_however_long_it_waits(database: Database) -> None:
    app, clock, attempts = App("patient"), FixedClock(START), []

    @app.tool("work.patient", "read", attempts_max=50, retry_delay=1, retry_delay_max=1, retry_elapsed_max=10)
    async def patient(context: Context) -> Any:
        attempts.append(context.attempt)
        await busy(context)

    async with open_kernel(database.dsn, app, clock=clock, queue=QUEUE) as kernel:
        ids = [(await put(kernel, "work.patient", {}, key)).action.action_id for key in "ab"]
        await work_off(kernel)
        # Both are due; no server has a free slot for more than ten seconds.
        clock.advance(timedelta(seconds=9.9))
        await promote(kernel.journal)
        clock.advance(timedelta(seconds=0.1))
        await work_off(kernel)
        await close_unwanted(kernel.journal)
        ended = [await read(kernel, action_id) for action_id in ids]
        assert sorted(ids) == (await places(kernel))["dead_letters"]
        history = await told(kernel, ids[0])
    assert [1, 1] == attempts
    assert {(ActionState.EXHAUSTED, "RETRY_BUDGET", "busy")} == {
        (a.state, a.reason, a.failure_code) for a in ended
    }
    assert ("EXHAUSTED", "busy") == (history[-1][1]["kind"], history[-1][1]["failure_code"])


@pytest.mark.parametrize(
    ("capability", "attempts", "ending"),
    [
        ("work.read", 3, (ActionState.EXHAUSTED, "RETRY_BUDGET", None)),
        ("work.idempotent", 3, (ActionState.AMBIGUOUS, "EFFECT_AMBIGUOUS", EffectState.UNKNOWN)),
        ("work.unsafe", 1, (ActionState.AMBIGUOUS, "EFFECT_AMBIGUOUS", EffectState.UNKNOWN)),
    ],
)
async def test_an_action_that_kills_whatever_runs_it_ends(
    database: Database, capability: str, attempts: int, ending: tuple[ActionState, str, EffectState | None]
) -> None:
    shop, clock = Workshop(), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as survivor:
        action_id = (await put(survivor, capability, {}, "k")).action.action_id
        for _ in range(5):
            async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as victim:
                shop.began.clear()
                await dispatch(victim)
                if len(victim.engine.runs):
                    await shop.began.wait()
                await declare_dead(victim)
            await rescue(survivor.journal)
            clock.advance(timedelta(seconds=60))
            await promote(survivor.journal)
        ended = await read(survivor, action_id)
        dead = (await places(survivor))["dead_letters"]
    assert ending == (ended.state, ended.reason, ended.effect)
    assert (list(range(1, attempts + 1)), "INSTANCE_LOST") == (shop.attempts, ended.cause)
    assert ([action_id] if ended.state is ActionState.EXHAUSTED else []) == dead


async def test_a_late_answer_that_nothing_was_done_ends_what_was_given_up(database: Database) -> None:
    """Though the server would have tried it again, had it known."""
    shop = Workshop()

    async def busy_at_last(context: Context) -> Any:
        await shop.gate.wait()
        await busy(context)

    shop.script = busy_at_last
    async with open_kernel(database.dsn, shop.app) as survivor:
        async with open_kernel(database.dsn, shop.app, queue=QUEUE) as zombie:
            action_id = (await put(zombie, "work.unsafe", {}, "k")).action.action_id
            await dispatch(zombie)
            await shop.began.wait()
            await declare_dead(zombie)
            assert 1 == (await rescue(survivor.journal)).ambiguous
            shop.gate.set()
            await until(lambda: not len(zombie.engine.runs))
        ended = await read(survivor, action_id)
        assert NOTHING | {"dead_letters": [action_id]} == await places(survivor)
    assert (ActionState.FAILED, EffectState.NOT_DONE, "busy") == (
        ended.state,
        ended.effect,
        ended.failure_code,
    )


async def test_who_executes_beside_it_gets_the_result_of_the_servers_retries(database: Database) -> None:
    shop, clock = Workshop(), FixedClock(START)
    shop.script = busy
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        await put(kernel, "work.idempotent", {}, "k")
        await work_off(kernel)
        call = asyncio.create_task(run(kernel, "work.idempotent", {}, "k"))
        await asyncio.sleep(0.1)
        shop.script = None
        shop.gate.set()
        await later(kernel, clock, 2.0)
        executed = await call
    assert (ActionState.SUCCEEDED, 2, True) == (
        executed.action.state,
        executed.action.attempt,
        executed.attached,
    )
    assert (1, [1, 2]) == (shop.effects, shop.attempts)


async def test_each_dead_letter_is_counted_once_by_whoever_buries_it(database: Database) -> None:
    """The run that spends the budget, the sweep where nobody began it in time, and the rescuer."""
    shop, clock, metrics = Workshop(), FixedClock(START), Metrics()
    once: dict[str, Any] = {"key": "optional", "attempts_max": 1}
    shop.app.tool("work.once", "read", **once)(busy)
    shop.app.tool("work.slow", "read", queue_delay_max=5.0, **once)(busy)
    async with (
        open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as mortal,
        open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as survivor,
    ):
        for kernel in (mortal, survivor):
            object.__setattr__(kernel.journal, "note_dead", CountingObserver(metrics).dead)
        await put(mortal, "work.once", {})
        await work_off(mortal)
        await put(mortal, "work.slow", {})
        clock.advance(timedelta(seconds=6))
        assert [1, 0] == [await close_unwanted(kernel.journal) for kernel in (survivor, mortal)]
        for _ in range(3):
            await put(mortal, "work.read", {})
        await dispatch(mortal)
        await until(lambda: 3 == len(shop.attempts))
        async with survivor.journal.pool.connection() as connection:
            await connection.execute("update actions set attempts_max = 1")
        await declare_dead(mortal)
        assert [3, 0] == [(await rescue(survivor.journal)).actions for _ in range(2)]
        assert 5 == len((await places(survivor))["dead_letters"])
    assert {("default", "RETRY_BUDGET"): 4, ("default", "QUEUE_DELAY"): 1} == metrics.dead_letters.series
