"""More run at once than a contract allows, or begin sooner; a slot stays taken after its holder is gone, or is free
before its handler has ended. `PLACET_RACE_ROUNDS`: how often two servers race for the same slots."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet_server.core.admission.slot import in_slot
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.slot import release_slot, retake_slot, take_slot
from placet_server.core.kernel import Kernel
from placet_server.core.publication.promote import promote
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action, Submission
from placet_server.model.errors import Overloaded, StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    ALICE,
    EVE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    put,
    read,
    run,
    states,
    until,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "2"))
START = datetime(2030, 1, 1, tzinfo=UTC)


async def held(kernel: Kernel) -> int:
    async with kernel.journal.pool.connection() as connection:
        count: int = await connection.fetchval("select count(*) from slots where lease_id is not null")
    return count


async def all_given_back(*kernels: Kernel) -> None:
    # Who has just ended is told of in the next turn.
    await asyncio.sleep(0)
    for slots in (kernel.engine.slots for kernel in kernels):
        await until(
            lambda slots=slots: not slots._left and (slots._releasing is None or slots._releasing.done())
        )


async def work_on(kernel: Kernel) -> None:
    """As after the time for which a full line is passed over."""
    assert kernel.dispatcher is not None
    kernel.dispatcher._lines._full.clear()
    await work_off(kernel)


async def test_who_calls_beyond_the_bound_is_turned_away_and_nothing_is_stored(database: Database) -> None:
    shop = Workshop(concurrency_max=2)
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as two:
        calls = [asyncio.create_task(run(k, "work.unsafe", {}, f"k{n}")) for n, k in enumerate((one, two))]
        await until(lambda: shop.at_once == 2)
        for kernel in (one, two):
            with pytest.raises(Overloaded) as raised:
                await run(kernel, "work.unsafe", {}, "k2")
            assert ("capability_slots", 2) == (raised.value.limit, raised.value.limit_max)
        assert 2 * ["RUNNING"] == await states(one)
        other = asyncio.create_task(run(one, "work.unsafe", {}, "k2", caller=EVE))
        await until(lambda: shop.at_once == 3)
        # Who comes with the key of what runs needs no slot.
        attached = asyncio.create_task(run(two, "work.unsafe", {}, "k0"))
        shop.gate.set()
        done = await asyncio.gather(*calls, other, attached)
        # An answer says that its slot is free.
        for number in range(3, 9):
            await run(two, "work.unsafe", {}, f"k{number}")
    assert [False, False, False, True] == [each.attached for each in done]
    assert 9 == shop.effects


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_a_thousand_over_two_servers_run_once_each_and_never_too_many(
    database: Database, seed: int
) -> None:
    count, bound = (1000, 40) if seed == 0 else (120, 3 + seed % 5)
    ran: Counter[str] = Counter()
    shop = Workshop(concurrency_max=bound)

    async def work(context: Context) -> Any:
        ran[context.action_id] += 1
        await asyncio.sleep(0)
        if ran[context.action_id] == 1 and len(ran) % 9 == seed % 9:
            raise Failure("busy", "later", category="temporary", effect="not_done", retry_delay=0.001)
        return context.action_id

    shop.script = work
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as two,
    ):
        await asyncio.gather(*(put(one, "work.read", {}, f"k{number}") for number in range(count)))
        async with asyncio.timeout(60):
            while {"QUEUED", "RUNNING"} & set(await states(one)):
                async with one.journal.pool.connection() as connection:
                    await connection.execute("update queue_delayed set ready_time = now()")
                    await connection.execute("update actions set ready_time = now() where state = 'QUEUED'")
                await promote(one.journal)
                await asyncio.gather(work_off(one), work_off(two))
        assert {"SUCCEEDED"} == set(await states(one))
        await all_given_back(one, two)
    assert count == len(ran)
    assert sum(ran.values()) - count == sum(times == 2 for times in ran.values())
    assert shop.at_once_max <= bound


async def test_the_killed_holder_of_a_queue_that_runs_one_at_a_time_lets_it_move_on(
    database: Database,
) -> None:
    shop, clock = Workshop(concurrency_max=1), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as two:
        async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as one:
            ids = [(await put(one, "work.read", {}, f"k{n}")).action.action_id for n in range(2)]
            await dispatch(one)
            await until(lambda: shop.at_once == 1)
            await dispatch(two)
            assert ["QUEUED", "RUNNING"] == sorted(await states(two))
        # Until its holder is known to be dead, the slot is its own, however long that takes.
        clock.advance(timedelta(seconds=60))
        await work_on(two)
        assert ["QUEUED", "RUNNING"] == sorted(await states(two))
        async with two.journal.pool.connection() as connection:
            sql = "update instances set state = 'DEAD', dead_time = now() where boot_id = $1"
            await connection.execute(sql, one.boot_id)
        assert 1 == (await rescue(two.journal)).requeued
        shop.gate.set()
        await work_on(two)
        clock.advance(timedelta(seconds=60))
        await promote(two.journal)
        await work_on(two)
        ended = [await read(two, action_id) for action_id in ids]
    assert 2 * [ActionState.SUCCEEDED] == [action.state for action in ended]
    assert [1, 2] == sorted(action.attempt for action in ended)


async def test_a_dead_boot_begins_nothing_in_a_slot(database: Database) -> None:
    shop = Workshop(concurrency_max=1)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.read", {}, "k")
        await declare_dead(kernel)
        assert kernel.dispatcher is not None
        await kernel.dispatcher.run_once()
        assert (["QUEUED"], 0) == (await states(kernel), await held(kernel))


async def test_a_slot_just_taken_is_not_free_before_its_row_is_written(database: Database) -> None:
    shop, clock = Workshop(concurrency_max=1), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        capability = (await kernel.catalog.resolve("acme", "work.read", "1")).capability
        nobody = "00000000-0000-4000-8000-000000000000"
        await take_slot(kernel.engine.slots, kernel.journal, capability, "acme", nobody, nobody)
        clock.advance(timedelta(seconds=9))
        with pytest.raises(Overloaded):
            await run(kernel, "work.read", {})
        clock.advance(timedelta(seconds=2))
        shop.gate.set()
        await run(kernel, "work.read", {})


async def test_the_slot_of_a_lease_that_was_lost_is_free_though_its_action_runs(database: Database) -> None:
    shop, clock = Workshop(concurrency_max=1), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        lost = asyncio.create_task(run(kernel, "work.unsafe", {}, "k"))
        await shop.began.wait()
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update actions set lease_id = gen_random_uuid()")
        clock.advance(timedelta(seconds=11))
        shop.gate.set()
        await run(kernel, "work.unsafe", {}, "another")
        lost.cancel()


async def test_what_was_written_too_late_for_its_slot_is_not_run_beside_who_has_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet_server.core.admission.slot.HOLD_SECONDS", -1.0)
    shop = Workshop(concurrency_max=1)
    async with open_kernel(database.dsn, shop.app) as kernel:
        written = (await put(kernel, "work.read", {})).action
        capability = (await kernel.catalog.resolve("acme", "work.read", "1")).capability
        pool = kernel.journal.pool

        async def write(steal: bool) -> Action:
            async with pool.connection() as connection:
                if steal:
                    await connection.execute("update slots set lease_id = gen_random_uuid()")
                else:
                    assert 1 == await held(kernel)
            return written

        for steal in (False, True):
            lease_id = str(uuid4())
            beginning = in_slot(
                kernel.engine, capability, "acme", written.action_id, lease_id, partial(write, steal)
            )
            if steal:
                with pytest.raises(StoreUnavailable) as raised:
                    await kernel.engine.supervisor.start(beginning)
                assert "too late for its slot" == raised.value.detail
            else:
                assert written is await kernel.engine.supervisor.start(beginning)
            await all_given_back(kernel)


async def test_a_clock_that_was_ahead_keeps_no_slot_from_others(database: Database) -> None:
    shop, clock = Workshop(concurrency_max=1, rate_max=5), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        capability = (await kernel.catalog.resolve("acme", "work.read", "1")).capability
        nobody = "00000000-0000-4000-8000-000000000000"
        await take_slot(kernel.engine.slots, kernel.journal, capability, "acme", nobody, nobody)
        clock.advance(timedelta(hours=-1))
        shop.gate.set()
        await run(kernel, "work.read", {})


async def test_a_cancelled_blocking_handler_keeps_its_slot_until_it_has_ended(database: Database) -> None:
    app, gate, began = App("blocking"), threading.Event(), threading.Event()

    @app.tool("work.block", "unsafe", concurrency_max=1)
    def block() -> None:
        began.set()
        assert gate.wait(30)

    async with open_kernel(database.dsn, app) as kernel:
        ids: list[str] = []
        call = asyncio.create_task(run(kernel, "work.block", {}, "k", on_admitted=ids.append))
        await until(began.is_set)
        cancelled = await cancel_action(kernel.engine, ALICE, ids[0], "enough")
        with pytest.raises(Overloaded):
            await run(kernel, "work.block", {}, "other")
        assert (ActionState.RUNNING, True) == (
            (await read(kernel, ids[0])).state,
            cancelled.cancel_requested_time_us is not None,
        )
        gate.set()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: kernel.engine.runs.get(ids[0]) is None)
        await run(kernel, "work.block", {}, "other")


async def test_no_more_begin_in_a_second_than_the_rate_allows(database: Database) -> None:
    shop, clock = Workshop(rate_max=2, concurrency_max=10), FixedClock(START)
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        for number in range(2):
            await run(kernel, "work.unsafe", {}, f"k{number}")
        # Whoever asks for what has run begins nothing.
        await run(kernel, "work.unsafe", {}, "k0")
        with pytest.raises(Overloaded) as raised:
            await run(kernel, "work.unsafe", {}, "k2")
        assert ("capability_rate", 0.5) == (raised.value.limit, raised.value.retry_delay_seconds)
        await all_given_back(kernel)
        assert 0 == await held(kernel)
        for number in range(5):
            await put(kernel, "work.unsafe", {}, f"q{number}")
        await work_on(kernel)
        assert 2 == shop.effects
        clock.advance(timedelta(seconds=0.5))
        await work_on(kernel)
        assert 3 == shop.effects
        # Whom the rate refuses has no slot either.
        await all_given_back(kernel)
        assert 0 == await held(kernel)
        clock.advance(timedelta(seconds=100))
        await work_on(kernel)
        assert 5 == shop.effects
        with pytest.raises(Overloaded):
            await run(kernel, "work.unsafe", {}, "k2")


async def test_a_known_key_costs_no_start(database: Database) -> None:
    shop, clock = Workshop(rate_max=1), FixedClock(START)
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        await run(kernel, "work.unsafe", {}, "k")
        clock.advance(timedelta(seconds=1))
        for _ in range(3):
            assert (await run(kernel, "work.unsafe", {}, "k")).attached
        await run(kernel, "work.unsafe", {}, "another")


async def test_who_asks_for_what_waits_in_line_waits_for_a_slot_too(database: Database) -> None:
    shop = Workshop(concurrency_max=1)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "k0")
        await dispatch(kernel)
        await shop.began.wait()
        waiting = (await put(kernel, "work.unsafe", {}, "k1")).action.action_id
        call = asyncio.create_task(run(kernel, "work.unsafe", {}, "k1"))
        await until(lambda: waiting in kernel.journal.hub._waiting)
        assert 1 == shop.at_once
        shop.gate.set()
        assert (waiting, 2) == ((await call).action.action_id, shop.effects)


async def test_a_full_line_holds_up_no_other_one(database: Database) -> None:
    shop = Workshop()
    gate = asyncio.Event()

    @shop.app.tool("work.narrow", "read", concurrency_max=1)
    async def narrow() -> None:
        await gate.wait()

    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        for number in range(3):
            await put(kernel, "work.narrow", {}, f"n{number}", place=Submission(priority=0))
        for number in range(3):
            await put(kernel, "work.read", {}, f"k{number}")
        await dispatch(kernel)
        await until(lambda: shop.effects == 3 and len(kernel.engine.runs) == 1)
        gate.set()
        async with asyncio.timeout(30):
            while "SUCCEEDED" not in (found := set(await states(kernel))) or len(found) > 1:
                await work_off(kernel)
        assert {"SUCCEEDED"} == set(await states(kernel))


async def test_who_waits_for_another_action_lets_others_use_its_slot(database: Database) -> None:
    shop = Workshop(concurrency_max=1)
    async with open_kernel(database.dsn, shop.app) as kernel:
        ids: list[str] = []
        parent = asyncio.create_task(run(kernel, "work.unsafe", {}, "parent", on_admitted=ids.append))
        await shop.began.wait()
        action = await read(kernel, ids[0])
        capability = (await kernel.catalog.resolve("acme", "work.unsafe", "1")).capability
        await release_slot(kernel.journal, capability, action)
        child = asyncio.create_task(run(kernel, "work.unsafe", {}, "child"))
        await until(lambda: shop.at_once == 2)
        back = asyncio.create_task(retake_slot(kernel.journal, capability, action))
        with pytest.raises(Overloaded):
            await run(kernel, "work.unsafe", {}, "third")
        shop.gate.set()
        await asyncio.gather(parent, child, back)
