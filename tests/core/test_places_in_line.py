"""What is ready again waits in line: at once or after its caller's grace, until it is not to be begun any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.ending import StopCause, Stopped
from placet_server.core.execution.judgement import judge
from placet_server.core.kernel import Kernel
from placet_server.core.publication.settle import settle
from placet_server.core.recovery.rescue import close_unwanted
from placet_server.model.action import Action, OnCallerGone
from placet_server.model.lifecycle import ActionState
from placet_server.model.line import Line
from placet_server.store.clock import FixedClock
from tests.core.kernels import ALICE, declare_dead, only_action, open_kernel, run
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
LINE = Line("default", "work.read", "1", "acme")


@asynccontextmanager
async def given_up(
    database: Database,
    cause: StopCause,
    *,
    capability: str = "work.read",
    attempts_max: int = 3,
    clock: FixedClock | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Kernel, Action]]:
    """An executed action whose server has died, settled by another one."""
    shop = Workshop(attempts_max=attempts_max)
    clock = clock or FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as survivor:
        async with open_kernel(database.dsn, shop.app, clock=clock) as old:
            call = asyncio.create_task(run(old, capability, {}, "k", **options))
            await shop.began.wait()
            await declare_dead(old)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        action = await only_action(survivor)
        stopped = Stopped(cause=cause, entered=cause is StopCause.INSTANCE_LOST)
        assert action.start_time_us is not None
        settled = await settle(
            survivor.journal, action, judge(action, stopped, now_us=action.start_time_us), as_read=True
        )
        assert settled is not None
        yield survivor, settled


async def places(kernel: Kernel) -> list[tuple[str, float, float | None]]:
    """Table, when the place is due and when it expires: seconds from START."""
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            """select 'ready' as place, ready_time, expire_time from queue_ready
            union all select 'delayed', ready_time, expire_time from queue_delayed
            union all select 'dead', dead_time, null from dead_letters"""
        )
    return [(r[0], _seconds(r[1]), None if r[2] is None else _seconds(r[2])) for r in rows]


def _seconds(time: datetime) -> float:
    return (time - START).total_seconds()


async def test_an_executed_action_is_left_to_its_caller_for_the_grace(database: Database) -> None:
    async with given_up(database, StopCause.NEVER_STARTED, timeout_seconds=30.0) as (kernel, action):
        assert (ActionState.QUEUED, START.timestamp() * 1e6) == (action.state, action.ready_time_us)
        ((place, due, expiry),) = await places(kernel)
        assert ("delayed", 10.0) == (place, due)
        # The caller's deadline, less the margin for the answer.
        assert expiry is not None
        assert due <= expiry < 10.01
        assert frozenset() == await kernel.journal.doorbell.wait(0)


async def test_a_detached_action_is_anybodys_at_once(database: Database) -> None:
    gone = OnCallerGone.DETACH
    async with given_up(database, StopCause.NEVER_STARTED, on_caller_gone=gone) as (kernel, _):
        assert [("ready", 0.0, None)] == await places(kernel)
        assert frozenset({LINE}) == await kernel.journal.doorbell.wait(0)


async def test_a_lost_attempt_waits_for_its_pause(database: Database) -> None:
    gone = OnCallerGone.DETACH
    async with given_up(database, StopCause.INSTANCE_LOST, on_caller_gone=gone) as (kernel, action):
        assert action.ready_time_us is not None
        due = action.ready_time_us / 1e6 - START.timestamp()
        assert due > 0
        assert [("delayed", round(due, 6), None)] == await places(kernel)


async def test_what_may_have_happened_waits_only_while_repeating_is_safe(database: Database) -> None:
    gone = OnCallerGone.DETACH
    clock = FixedClock(START)
    async with given_up(
        database, StopCause.INSTANCE_LOST, capability="work.idempotent", on_caller_gone=gone, clock=clock
    ) as (kernel, _):
        ((_, _, expiry),) = await places(kernel)
        assert 86400.0 == expiry
        clock.advance(timedelta(seconds=86399))
        assert 0 == await close_unwanted(kernel.journal)
        clock.advance(timedelta(seconds=1))
        assert 1 == await close_unwanted(kernel.journal)
        assert (ActionState.AMBIGUOUS, []) == ((await only_action(kernel)).state, await places(kernel))


async def test_nobody_runs_what_its_caller_has_left_and_it_ends(database: Database) -> None:
    clock = FixedClock(START)
    async with given_up(database, StopCause.NEVER_STARTED, clock=clock) as (kernel, _):
        clock.advance(timedelta(seconds=9))
        assert 0 == await close_unwanted(kernel.journal)
        clock.advance(timedelta(seconds=1))
        assert 1 == await close_unwanted(kernel.journal)
        action = await only_action(kernel)
        assert (ActionState.CANCELLED, "DEADLINE_EXCEEDED", "CALLER_GONE") == (
            action.state,
            action.reason,
            action.cause,
        )
        assert [] == await places(kernel)


async def test_a_spent_budget_is_a_dead_letter_whoever_asked(database: Database) -> None:
    async with given_up(database, StopCause.INSTANCE_LOST, attempts_max=1) as (kernel, action):
        assert ActionState.EXHAUSTED is action.state
        assert ["dead"] == [place for place, _, _ in await places(kernel)]


async def test_a_cancel_takes_the_place_away(database: Database) -> None:
    async with given_up(database, StopCause.NEVER_STARTED) as (kernel, action):
        assert (
            ActionState.CANCELLED is (await cancel_action(kernel.engine, ALICE, action.action_id, "")).state
        )
        assert [] == await places(kernel)


async def test_a_place_that_expired_for_no_reason_is_put_right(database: Database) -> None:
    gone = OnCallerGone.DETACH
    async with given_up(database, StopCause.NEVER_STARTED, on_caller_gone=gone) as (kernel, _):
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update queue_ready set expire_time = $1", START)
        assert 0 == await close_unwanted(kernel.journal)
        assert [("ready", 0.0, None)] == await places(kernel)
