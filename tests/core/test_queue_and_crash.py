"""Servers that die, freeze or lose a reply around a claim: the work is done, once where that matters, and whoever was
given up changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from placet.context import Context
from placet.failure import Failure
from placet_server.core.admission import attend
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.kernel import Kernel
from placet_server.core.publication.promote import promote
from placet_server.core.recovery.ownership import release_forgotten
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store import queue
from placet_server.store.queue import Picked, claim_batch
from tests.core.kernels import (
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
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

NOW = ExecutionSettings(unowned_age_seconds=0.0)
NOWHERE: dict[str, list[str]] = {"queue_ready": [], "queue_delayed": [], "dead_letters": []}


def after_claims(monkeypatch: pytest.MonkeyPatch, then: Callable[[], Awaitable[None]]) -> None:
    """What happens between the store's answer to the next claim and its arrival."""
    done = False

    async def claim(*arguments: Any, **options: Any) -> list[Picked]:
        nonlocal done
        picked = await claim_batch(*arguments, **options)
        if not done:
            done = True
            await then()
        return picked

    monkeypatch.setattr(queue, "claim_batch", claim)


async def test_a_claim_whose_answer_is_lost_costs_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop()
    shop.gate.set()

    async def lose() -> None:
        raise ConnectionResetError

    after_claims(monkeypatch, lose)
    async with open_kernel(database.dsn, shop.app, settings=NOW, queue=QUEUE) as kernel:
        for order in range(3):
            await put(kernel, "work.unsafe", {"order": str(order)}, f"k{order}")
        with pytest.raises(StoreUnavailable):
            await dispatch(kernel)
        assert 3 * ["RUNNING"] == await states(kernel)
        assert [] == shop.attempts
        assert 3 == await release_forgotten(kernel.engine)
        await work_off(kernel)
        assert 3 * ["SUCCEEDED"] == await states(kernel)
        assert 3 == shop.effects
        assert NOWHERE == await places(kernel)


@pytest.mark.both_servers
async def test_a_loss_without_fault_costs_no_attempt(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost claim and a shutdown, then as many failures as two attempts allow: the second one ends it."""
    shop = Workshop(attempts_max=2)

    async def busy(context: Context) -> Any:
        raise Failure("busy", "later", category="temporary", effect="not_done", retry_delay=0.001)

    async def lose() -> None:
        raise ConnectionResetError

    after_claims(monkeypatch, lose)
    async with open_kernel(database.dsn, shop.app, settings=NOW, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.read", {}, "k")).action.action_id
        with pytest.raises(StoreUnavailable):
            await dispatch(kernel)
        assert 1 == await release_forgotten(kernel.engine)
        await dispatch(kernel)
        await shop.began.wait()
        run_ = kernel.engine.runs.get(action_id)
        assert run_ is not None
        assert run_.task is not None
        run_.stop(StopCause.SHUTDOWN)
        await asyncio.wait([run_.task])
        stopped = await read(kernel, action_id)
        assert (ActionState.QUEUED, 2, 3) == (stopped.state, stopped.attempt, stopped.attempts_max)
        shop.script = busy
        while (await read(kernel, action_id)).state is ActionState.QUEUED:
            await promote_all(kernel)
            await work_off(kernel)
        ended = await read(kernel, action_id)
    assert (ActionState.EXHAUSTED, [2, 3, 4], 4) == (ended.state, shop.attempts, ended.attempts_max)


async def promote_all(kernel: Kernel) -> None:
    """What waits for its time is due."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update queue_delayed set ready_time = now(), expire_time = null")
        await connection.execute("update actions set ready_time = now() where state = 'QUEUED'")
    await promote(kernel.journal)


async def test_an_answer_that_comes_too_late_is_not_acted_on(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was frozen: others may have taken over meanwhile."""
    shop = Workshop()
    shop.gate.set()
    after_claims(monkeypatch, lambda: asyncio.sleep(0.6))
    async with open_kernel(database.dsn, shop.app, lease_seconds=1.0, queue=QUEUE) as kernel:
        action_id = (await put(kernel, "work.unsafe", {}, "k")).action.action_id
        assert kernel.dispatcher is not None
        await kernel.dispatcher.run_once()
        await until(lambda: not len(kernel.engine.runs))
        assert [] == shop.attempts
        given_back = await read(kernel, action_id)
        assert (ActionState.QUEUED, "NOT_DONE") == (given_back.state, given_back.effect)
        await work_off(kernel)
        assert ActionState.SUCCEEDED is (await read(kernel, action_id)).state
        assert 1 == shop.effects


@pytest.mark.parametrize("capability", ["work.unsafe", "work.idempotent"])
async def test_a_boot_that_dies_before_it_can_start_loses_its_claim(
    database: Database, monkeypatch: pytest.MonkeyPatch, capability: str
) -> None:
    """Late, so that it does not start; and what it then wants to give back is not its any more."""
    shop = Workshop()
    shop.gate.set()
    async with (
        open_kernel(database.dsn, shop.app, lease_seconds=1.0, queue=QUEUE) as dying,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as survivor,
    ):

        async def die() -> None:
            await declare_dead(dying)
            await rescue(survivor.journal)
            await asyncio.sleep(0.6)

        after_claims(monkeypatch, die)
        action_id = (await put(survivor, capability, {}, "k")).action.action_id
        assert dying.dispatcher is not None
        await dying.dispatcher.run_once()
        await until(lambda: not len(dying.engine.runs))
        rescued = await read(survivor, action_id)
        wanted = {"work.unsafe": ActionState.AMBIGUOUS, "work.idempotent": ActionState.QUEUED}
        assert wanted[capability] is rescued.state
        assert [] == shop.attempts


async def test_a_dead_boot_claims_and_submits_nothing(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as dead,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as alive,
    ):
        await put(dead, "work.unsafe", {}, "k")
        await declare_dead(dead)
        await work_off(dead)
        assert ["QUEUED"] == await states(alive)
        await work_off(alive)
        assert ["SUCCEEDED"] == await states(alive)
        assert 1 == shop.effects


async def test_a_result_under_a_lost_lease_changes_nothing(database: Database) -> None:
    lost, shop = Workshop(retry_delay=0.001), Workshop(retry_delay=0.001)
    async with (
        open_kernel(database.dsn, lost.app, queue=QUEUE) as dying,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as survivor,
    ):
        action_id = (await put(dying, "work.idempotent", {"order": "1"}, "k")).action.action_id
        await dispatch(dying)
        await lost.began.wait()
        await declare_dead(dying)
        assert 1 == (await rescue(survivor.journal)).requeued
        await _due(survivor)
        await dispatch(survivor)
        await shop.began.wait()
        second = await read(survivor, action_id)
        # The first one answers now, in the middle of the second's attempt.
        lost.gate.set()
        await until(lambda: not len(dying.engine.runs))
        assert second == await read(survivor, action_id)
        shop.gate.set()
        await work_off(survivor)
        done = await read(survivor, action_id)
        assert (ActionState.SUCCEEDED, 2, second.sequence + 1) == (done.state, done.attempt, done.sequence)


async def test_two_rescuers_and_their_claims_run_each_action_once(database: Database) -> None:
    lost, shop = Workshop(retry_delay=0.001), Workshop(retry_delay=0.001)
    shop.gate.set()
    async with (
        open_kernel(database.dsn, lost.app, queue=QUEUE) as dying,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as other,
    ):
        for order in range(20):
            await put(dying, "work.idempotent", {"order": str(order)}, f"k{order}")
        await dispatch(dying)
        await until(lambda: 20 == len(lost.attempts))
        await declare_dead(dying)
        rescued = await asyncio.gather(rescue(one.journal), rescue(other.journal))
        assert 20 == sum(each.requeued for each in rescued)
        await _due(one)
        await asyncio.gather(work_off(one), work_off(other))
        assert 20 * ["SUCCEEDED"] == await states(one)
        assert 20 * [2] == shop.attempts
        assert NOWHERE == await places(one)


async def test_a_resend_that_has_not_heard_of_its_loss_does_not_stand_in_the_way(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Workshop()
    shop.gate.set()
    asked, answered = asyncio.Event(), asyncio.Event()

    async def claim(*arguments: Any) -> Action | None:
        asked.set()
        await answered.wait()
        return None

    monkeypatch.setattr(attend, "_claim", claim)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {"order": "3"}, "k")
        resending = asyncio.create_task(run(kernel, "work.unsafe", {"order": "3"}, "k"))
        await asked.wait()
        await dispatch(kernel)
        assert ["RUNNING"] == await states(kernel)
        assert [] == shop.attempts
        # Nor is it forgotten by a server that leaves just then.
        draining = asyncio.create_task(kernel.drain(5.0))
        answered.set()
        assert await draining
        assert {"order": "3"} == output((await resending).action)
        assert [1] == shop.attempts
        await until(lambda: kernel.dispatcher is not None and not kernel.dispatcher.running)


async def test_one_that_cannot_be_started_keeps_no_other_from_it(database: Database) -> None:
    """Its caller is of a kind that this release does not know."""
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, settings=NOW, queue=QUEUE) as kernel:
        ids = [(await put(kernel, "work.read", {})).action.action_id for _ in range(5)]
        async with kernel.journal.pool.connection() as connection:
            sql = "update actions set caller = replace(caller, 'USER', 'ROBOT') where action_id = $1"
            await connection.execute(sql, ids[1])
        await dispatch(kernel)
        await until(lambda: 4 == shop.effects)
        await until(lambda: not len(kernel.engine.runs))
        assert 4 == (await states(kernel)).count("SUCCEEDED")
        # It is not lost: who can run it may.
        assert 1 == await release_forgotten(kernel.engine)
        assert [ids[1]] == (await places(kernel))["queue_ready"]


async def test_a_place_left_behind_stops_nobody(database: Database) -> None:
    """As a release that does not know of places would leave them."""
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        ids = [(await put(kernel, "work.unsafe", {}, f"k{n}")).action.action_id for n in range(3)]
        await run(kernel, "work.unsafe", {}, "k0")
        async with kernel.journal.pool.connection() as connection:
            columns = "tenant, action_id, 'default', capability, version, 0, ready_time"
            again = f"insert into queue_ready select {columns} from actions where action_id = $1"
            await connection.execute(again, ids[0])
        await work_off(kernel)
        assert 3 * ["SUCCEEDED"] == await states(kernel)
        assert NOWHERE == await places(kernel)
        assert 3 == shop.effects


async def _due(kernel: Kernel) -> None:
    """Whatever pause there is after a rescue is over."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update actions set ready_time = now() where state = 'QUEUED'")
        await connection.execute(
            "with d as (delete from queue_delayed returning *) insert into queue_ready select * from d"
        )
