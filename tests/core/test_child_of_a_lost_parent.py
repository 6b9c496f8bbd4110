"""A step of an action is one action of its own, whatever becomes of the attempts that ask for it."""

import asyncio
import math
import os
from dataclasses import replace
from typing import Any

import pytest

import placet
from placet.app import App
from placet.context import Context, SyncContext
from placet_server.core.execution.attempt import LeaseLost
from placet_server.core.kernel import Kernel
from placet_server.core.publication.lease import child_id
from placet_server.core.publication.read import list_actions
from placet_server.core.recovery.rescue import rescue
from placet_server.loops.queue_runner import QueueRunner
from placet_server.model.action import Action, Submission
from placet_server.model.caller import Caller
from placet_server.model.errors import JsonNotInteroperable
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.query import ActionQuery
from placet_server.store.lineage import DEPTH_MAX
from tests.core.family import family
from tests.core.kernels import (
    ALICE,
    BOB,
    EVE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.postgres import Database

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "5"))


async def children(kernel: Kernel) -> list[tuple[str, str, str]]:
    """Step, state and capability of all, by step."""
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select step_path, state, capability from actions where parent_id is not null order by step_path"
        )
    return [tuple(row) for row in rows]


async def events(kernel: Kernel, action: Action) -> list[str]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select type from events where action_id = $1 order by sequence", action.action_id
        )
    return [row["type"] for row in rows]


async def test_a_child_waits_in_its_parents_queue_and_answers_it(database: Database) -> None:
    seen: list[Any] = []

    async def ship(context: Context) -> Any:
        return await context.call("charge", "work.unsafe", {"order": "7"}, timeout=5)

    async def charge(context: Context) -> Any:
        seen.append((context.caller.subject, context.caller.scopes, context.time_left() <= 5))
        return {"order": "charged"}

    shop = family(ship, child=charge)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (
            await put(kernel, "work.idempotent", {}, "k", place=Submission(queue="slow", priority=3))
        ).action
        await work_off(kernel)
        parent = await read(kernel, parent.action_id)
        child = await read(kernel, child_id(parent.action_id, "charge"))
        assert (ActionState.SUCCEEDED, {"order": "charged"}) == (parent.state, output(parent))
        assert (parent.action_id, parent.action_id, "charge") == (
            child.parent_id,
            child.root_id,
            child.step_path,
        )
        assert ("slow", 3, "", 1) == (child.queue, child.priority, child.idempotency_key, child.attempt)
        assert parent.requester == replace(child.requester, delegation=())
        assert ["work.idempotent"] == [delegate.subject for delegate in child.requester.delegation]
        assert [("alice", ("*",), True)] == seen


async def test_a_plain_handler_calls_too_and_each_step_is_another_child(database: Database) -> None:
    app = App("shop")

    @app.tool("shop.add", "read")
    def add(a: int, b: int) -> int:
        return a + b

    @app.tool("shop.sum", "read")
    def total(context: SyncContext, numbers: list[int]) -> Any:
        so_far: Any = 0
        for place, number in enumerate(numbers):
            so_far = context.call(f"add.{place}", "shop.add", {"a": so_far, "b": number})
        return so_far

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        running = asyncio.create_task(run(kernel, "shop.sum", {"numbers": [1, 2, 3]}))
        await until(lambda: len(kernel.engine.runs) > 0)
        await work_off(kernel)
        executed = await running
        assert 6 == output(executed.action)
        assert ["add.0", "add.1", "add.2"] == [step for step, _, _ in await children(kernel)]


async def test_nothing_is_admitted_under_a_lease_that_is_lost(database: Database) -> None:
    lost = asyncio.Event()
    caught: list[BaseException] = []

    async def ship(context: Context) -> Any:
        if context.attempt > 1:
            return {"order": "by another"}
        await lost.wait()
        try:
            await context.call("charge", "work.unsafe", {})
        except BaseException as error:
            caught.append(error)
            raise

    shop = family(ship)
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as other,
    ):
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await dispatch(kernel)
        await shop.began.wait()
        # Alive and unknowing: what it asks for under its old lease is refused in the very statement.
        await declare_dead(kernel)
        await rescue(other.journal)
        assert ActionState.QUEUED is (await read(other, parent.action_id)).state
        lost.set()
        await until(lambda: len(kernel.engine.runs) == 0)
        assert [LeaseLost] == [type(error) for error in caught]
        assert [] == await children(other)
        assert 0 == shop.effects


@pytest.mark.parametrize(
    "change",
    [
        "lease_id = gen_random_uuid()",
        "state = 'AMBIGUOUS', effect = 'UNKNOWN', effect_unknown = true, reason = 'X'",
        "cancel_requested_time = now()",
    ],
)
async def test_what_its_parent_becomes_while_a_child_is_admitted_is_waited_for(
    database: Database, change: str
) -> None:
    """Each of these alone, not committed yet: the child waits for it, and is then refused."""
    may_call = asyncio.Event()

    async def ship(context: Context) -> None:
        await may_call.wait()
        await context.call("charge", "work.unsafe", {})

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await dispatch(kernel)
        await shop.began.wait()
        pool = kernel.journal.pool
        async with pool.tx() as connection:
            await connection.execute(f"update actions set {change} where action_id = $1", parent.action_id)
            may_call.set()
            stuck = False
            while not stuck:
                stuck = await connection.fetchval("select exists (select from pg_locks where not granted)")
                assert [] == await children(kernel)
        await until(lambda: 0 == len(kernel.engine.runs))
        assert [] == await children(kernel)


async def test_no_child_is_stored_once_its_parent_was_taken_away(database: Database) -> None:
    """However the two race: what the store has when the rescuer is done is all that there ever is."""

    async def ship(context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(context.call(f"part.{number}", "work.read", {}))
                await asyncio.sleep(0)

    async def stored(kernel: Kernel) -> int:
        async with kernel.journal.pool.connection() as connection:
            return int(await connection.fetchval("select count(*) from lineage"))

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as other:
        for number in range(ROUNDS):
            async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
                await put(kernel, "work.idempotent", {}, f"k{number}")
                before = await stored(kernel)
                await dispatch(kernel)
                # In between, wherever that is: no signal says so.
                while await stored(other) < before + 4 * number % 40:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                await declare_dead(kernel)
                await rescue(other.journal)
                known = await stored(other)
                if known < before + 40:
                    await until(lambda kernel=kernel: 0 == len(kernel.engine.runs))
                assert known == await stored(other)


@pytest.mark.parametrize("caller", ["work.idempotent", "work.read"])
async def test_a_rescued_parent_meets_the_child_that_its_lost_attempt_called(
    database: Database, caller: str
) -> None:
    frozen, answer = asyncio.Event(), asyncio.Event()
    callee = "work.read_too" if caller == "work.read" else "work.unsafe"

    async def ship(context: Context) -> Any:
        charged = await context.call("charge", callee, {"order": "7"})
        answer.set()
        if context.attempt == 1:
            await frozen.wait()
        return charged

    shop = family(ship, caller=caller)

    @shop.app.tool("work.read_too", "read")
    async def read_too(order: str) -> dict[str, str]:
        shop.effects += 1
        return {"order": "1"}

    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as lost,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as other,
    ):
        parent = (await put(lost, caller, {}, "k")).action
        await dispatch(lost)
        await answered(lost, answer)
        await declare_dead(lost)
        await rescue(other.journal)
        await later(other)
        await work_off(other)
        done = await read(other, parent.action_id)
        assert (ActionState.SUCCEEDED, {"order": "1"}, 2) == (done.state, output(done), done.attempt)
        assert 1 == shop.effects
        assert [("charge", "SUCCEEDED", callee)] == await children(other)
        frozen.set()


async def answered(kernel: Kernel, answer: asyncio.Event) -> None:
    """Until a handler says so, with all that it calls run meanwhile."""
    assert kernel.dispatcher is not None
    runner = kernel.engine.supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())
    await asyncio.wait_for(answer.wait(), 20)
    await kernel.engine.supervisor.stop([runner])


async def later(kernel: Kernel) -> None:
    """What is delayed is due."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update actions set ready_time = create_time where state = 'QUEUED'")
        await connection.execute(
            "with d as (delete from queue_delayed returning *) insert into queue_ready select * from d"
        )


@pytest.mark.parametrize("other", [("work.unsafe", {"order": "8"}), ("work.reconcilable", {"order": "7"})])
async def test_a_step_with_another_capability_or_input_is_a_mismatch(
    database: Database, other: tuple[str, Any]
) -> None:
    async def ship(context: Context) -> Any:
        await context.call("charge", "work.unsafe", {"order": "7"})
        with pytest.raises(placet.CallFailed) as raised:
            await context.call("charge", *other)
        again = await context.call("charge", "work.unsafe", {"order": "7"}, version="1")
        return {"order": f"{raised.value.outcome.kind} {raised.value.outcome.reason} {again}"}

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        done = await read(kernel, parent.action_id)
        assert {"order": "refused JOURNAL_MISMATCH {'order': '1'}"} == output(done)
        assert 1 == shop.effects


async def test_siblings_that_fail_together_are_one_ending(database: Database) -> None:
    async def ship(context: Context) -> Any:
        calls = (context.call(f"part.{n}", "work.unsafe", {}) for n in range(4))
        failed = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(failed[0], placet.CallFailed)
        raise failed[0]

    async def charge(context: Context) -> Any:
        raise placet.Failure("card_declined", "no", effect="not_done")

    shop = family(ship, child=charge, caller="work.unsafe_marked")
    shop.touch = False
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.unsafe_marked", {}, "k")).action
        await work_off(kernel)
        done = await read(kernel, parent.action_id)
        assert (ActionState.FAILED, "call_failed", EffectState.NOT_DONE) == (
            done.state,
            done.failure_code,
            done.effect,
        )
        assert 1 == (await events(kernel, parent)).count("settled")
        assert ["FAILED"] * 4 == [state for _, state, _ in await children(kernel)]
        async with kernel.journal.pool.connection() as connection:
            # The parent alone: somebody is told of each child.
            dead = await connection.fetch("select action_id::text from dead_letters")
        assert [parent.action_id] == [row[0] for row in dead]


async def test_a_parent_whose_child_may_have_acted_is_not_called_undone(database: Database) -> None:
    async def ship(context: Context) -> Any:
        await context.call("charge", "work.unsafe", {})
        await context.call("pack", "work.unsafe", {"order": "x"})

    async def charge(context: Context) -> Any:
        shop.effects += 1
        if shop.effects == 2:
            raise placet.Failure("no_box", effect="not_done")
        return {"order": "1"}

    shop = family(ship, child=charge, caller="work.unsafe_marked")
    shop.touch = False
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.unsafe_marked", {}, "k")).action
        await work_off(kernel)
        done = await read(kernel, parent.action_id)
        assert (ActionState.AMBIGUOUS, EffectState.UNKNOWN) == (done.state, done.effect)


REFUSED: dict[str, tuple[str, Any, str]] = {
    "unknown": ("work.none", {}, "CAPABILITY_NOT_FOUND"),
    "against its schema": ("work.unsafe", {"order": 7}, "INPUT_SCHEMA_VIOLATION"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_gate_refuses_a_child_as_it_refuses_a_client(database: Database, case: str) -> None:
    capability, value, reason = REFUSED[case]

    async def ship(context: Context) -> Any:
        with pytest.raises(placet.CallFailed) as raised:
            await context.call("charge", capability, value)
        with pytest.raises(ValueError, match="a step is"):
            await context.call("charge/1", "work.unsafe", {})
        outcome = raised.value.outcome
        return {"order": f"{outcome.kind} {outcome.reason} {outcome.action_id!r}"}

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        assert {"order": f"refused {reason} ''"} == output(await read(kernel, parent.action_id))
        assert [] == await children(kernel)


CANNOT_BE: dict[str, dict[str, Any]] = {
    "timeout is no number": {"timeout": math.nan},
    "timeout has no end": {"timeout": math.inf},
    "NUL in the capability": {"capability": "work.\0"},
    "half a character in the version": {"version": "\ud800"},
}


async def test_a_call_that_cannot_be_is_the_handlers_mistake_and_reaches_no_store(
    database: Database,
) -> None:
    async def ship(context: Context) -> Any:
        for options in CANNOT_BE.values():
            with pytest.raises(ValueError, match=r"a timeout is|a capability or its version"):
                await context.call("charge", **{"capability": "work.unsafe", "input": {}} | options)
        with pytest.raises(JsonNotInteroperable, match="input_json"):
            await context.call("charge", "work.unsafe", {"order": "\0"})
        return {"order": "none"}

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        assert {"order": "none"} == output(await read(kernel, parent.action_id))
        assert [] == await children(kernel)


async def test_a_family_has_a_bounded_depth(database: Database) -> None:
    app = App("shop")

    @app.tool("shop.nest", "read")
    async def nest(context: Context, depth: int = 0) -> str:
        try:
            return str(await context.call("deeper", "shop.nest", {"depth": depth + 1}))
        except placet.CallFailed as failed:
            return f"{depth} {failed.outcome.reason}"

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "shop.nest", {})).action
        await work_off(kernel)
        assert f"{DEPTH_MAX} CHILD_LIMIT" == output(await read(kernel, parent.action_id))
        assert DEPTH_MAX == len(await children(kernel))


async def test_a_family_is_listed_to_its_own_tenant_page_by_page(database: Database) -> None:
    async def ship(context: Context) -> Any:
        for number in range(5):
            await context.call(f"part.{number}", "work.read", {})
        return {"order": "5"}

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await put(kernel, "work.idempotent", {}, "other")
        await work_off(kernel)

        async def listed(caller: Caller, **query: Any) -> list[str]:
            found, after = [], ""
            while True:
                asked = ActionQuery(page_size=2, after_action_id=after, **query)
                page = await list_actions(kernel.journal, caller, asked)
                found += [action.step_path for action in page.actions]
                after = page.next_after_action_id
                if not after:
                    return sorted(found)

        steps = [f"part.{number}" for number in range(5)]
        assert steps == await listed(ALICE, parent_id=parent.action_id)
        assert steps == await listed(BOB, root_id=parent.action_id, capabilities=("work.read",))
        assert [] == await listed(ALICE, parent_id=parent.action_id, states=(ActionState.FAILED,))
        assert [] == await listed(EVE, parent_id=parent.action_id)
        assert [] == await listed(EVE, root_id=parent.action_id)
        assert 12 == len(await listed(ALICE))


async def test_an_attempt_has_a_bounded_number_of_calls(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placet_server.core.execution.child.CHILDREN_MAX", 3)

    async def ship(context: Context) -> Any:
        for number in range(3):
            await context.call(f"part.{number}", "work.read", {})
        with pytest.raises(placet.CallFailed, match="CHILD_LIMIT"):
            await context.call("one-more", "work.read", {})
        return {"order": "3"}

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        assert {"order": "3"} == output(await read(kernel, parent.action_id))
        assert 3 == len(await children(kernel))
