"""Whoever cancels an action cancels all that it has called, and what that has called; and no child slips in."""

import asyncio
import os
from typing import Any

import pytest

import placet
from placet.app import App
from placet.context import Context, SyncContext
from placet_server.core.admission.child import is_superseded
from placet_server.core.execution.cancel import cancel_action, cancel_below
from placet_server.core.execution.cancel_many import cancel_many
from placet_server.core.execution.ending import StopCause
from placet_server.core.kernel import Kernel
from placet_server.core.publication.lease import child_id
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.query import ActionQuery
from placet_server.store import action as actions
from placet_server.store.lineage import Tried
from tests.core.family import family
from tests.core.kernels import (
    ALICE,
    QUEUE,
    declare_dead,
    dispatch,
    let_children_stand_in_line,
    open_kernel,
    put,
    read,
    run,
    until,
)
from tests.postgres import Database

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "5"))


async def family_states(kernel: Kernel) -> dict[str, str]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select coalesce(step_path, 'root') as step, state from actions order by step_path"
        )
    return {row["step"]: row["state"] for row in rows}


async def called(kernel: Kernel, root_id: str, count: int) -> None:
    """Until so many descendants are stored."""
    async with asyncio.timeout(20):
        while True:
            async with kernel.journal.pool.connection() as connection:
                sql = "select count(*) from lineage where root_id = $1"
                if await connection.fetchval(sql, root_id) >= count:
                    return
            await asyncio.sleep(0.01)


def tree(hold: asyncio.Event) -> App:
    """A root that calls `left` and `right`; `left` calls `leaf`. Leaves hold."""
    app = App("tree")

    @app.tool("tree.root", "read")
    async def root(context: Context) -> Any:
        return await asyncio.gather(
            context.call("left", "tree.branch", {}), context.call("right", "tree.leaf", {})
        )

    @app.tool("tree.branch", "read")
    async def branch(context: Context) -> Any:
        return await context.call("leaf", "tree.leaf", {})

    @app.tool("tree.leaf", "read")
    async def leaf() -> str:
        await hold.wait()
        return "done"

    return app


@pytest.mark.parametrize("running", [True, False])
async def test_a_cancel_reaches_all_below_queued_or_running(database: Database, running: bool) -> None:
    hold = asyncio.Event()
    async with open_kernel(database.dsn, tree(hold), queue=QUEUE) as kernel:
        root = (await put(kernel, "tree.root", {})).action
        await dispatch(kernel)
        await called(kernel, root.action_id, 2)
        await dispatch(kernel)
        await called(kernel, root.action_id, 3)
        if running:
            await dispatch(kernel)
            await until(lambda: 4 == len(kernel.engine.runs))
        await cancel_action(kernel.engine, ALICE, root.action_id, "not needed")
        await until(lambda: 0 == len(kernel.engine.runs))
        found = await family_states(kernel)
        assert {"root": "CANCELLED", "left": "CANCELLED", "right": "CANCELLED", "leaf": "CANCELLED"} == found
        again = await cancel_action(kernel.engine, ALICE, root.action_id, "again")
        assert ActionState.CANCELLED is again.state


async def test_a_caller_who_is_gone_takes_the_family_with_him(database: Database) -> None:
    hold = asyncio.Event()
    async with open_kernel(database.dsn, tree(hold), queue=QUEUE) as kernel:
        calling = asyncio.create_task(run(kernel, "tree.root", {}))
        await until(lambda: 1 == len(kernel.engine.runs))
        root = next(iter(kernel.engine.runs))
        await called(kernel, root.action_id, 2)
        await dispatch(kernel)
        await called(kernel, root.action_id, 3)
        calling.cancel()
        await until(lambda: 0 == len(kernel.engine.runs))
        assert {"CANCELLED"} == set((await family_states(kernel)).values())


async def test_a_lost_parent_that_was_to_be_cancelled_leaves_no_child_behind(database: Database) -> None:
    """Who was to pass the cancel on died with the boot: the rescuer does."""
    hold = asyncio.Event()
    async with (
        open_kernel(database.dsn, tree(hold), queue=QUEUE) as kernel,
        open_kernel(database.dsn, tree(hold)) as other,
    ):
        root = (await put(kernel, "tree.root", {})).action
        let_children_stand_in_line(kernel)
        # Once alone: what the root calls stays in line.
        assert kernel.dispatcher is not None
        await kernel.dispatcher.run_once()
        await called(kernel, root.action_id, 2)
        async with other.journal.pool.connection() as connection:
            await actions.request_cancel(
                connection, tenant="acme", action_id=root.action_id, event_body="{}", now=None
            )
        await declare_dead(kernel)
        await rescue(other.journal)
        found = await family_states(other)
        assert {"root": "CANCELLED", "left": "CANCELLED", "right": "CANCELLED"} == found


@pytest.mark.parametrize("closer", ["claim", "many"])
async def test_a_parent_that_waits_is_not_ended_before_its_children_are_asked(
    database: Database, monkeypatch: pytest.MonkeyPatch, closer: str
) -> None:
    """Who dies in between leaves somebody to ask them."""
    hold = asyncio.Event()
    async with (
        open_kernel(database.dsn, tree(hold), queue=QUEUE) as kernel,
        open_kernel(database.dsn, tree(hold), queue=QUEUE) as other,
    ):
        root = (await put(kernel, "tree.root", {})).action
        await dispatch(kernel)
        await called(kernel, root.action_id, 2)
        await declare_dead(kernel)
        await rescue(other.journal)
        async with other.journal.pool.connection() as connection:
            await connection.execute("update actions set ready_time = create_time where parent_id is null")
            await connection.execute("update queue_delayed set ready_time = now()")
            await connection.execute("insert into queue_ready select * from queue_delayed")
            await connection.execute("delete from queue_delayed")
            if closer == "claim":
                await actions.request_cancel(
                    connection, tenant="acme", action_id=root.action_id, event_body="{}", now=None
                )
        if closer == "claim":
            await dispatch(other)
            assert ActionState.CANCELLED is (await read(other, root.action_id)).state
        else:

            async def die(*_: object, **__: object) -> list[str]:
                raise StoreUnavailable(detail="the end")

            monkeypatch.setattr(actions, "close_many", die)
            query = ActionQuery(capabilities=("tree.root",))
            with pytest.raises(StoreUnavailable):
                await cancel_many(other.engine, ALICE, query, "enough", validate_only=False)
        async with other.journal.pool.connection() as connection:
            unasked = "select count(*) from actions where cancel_requested_time is null"
            assert 0 == await connection.fetchval(unasked)


async def test_a_cancel_reaches_what_is_below_one_that_waits_to_be_run_again(database: Database) -> None:
    """Nobody runs the one between, who would hand it on."""
    shop = tree(asyncio.Event())
    async with (
        open_kernel(database.dsn, shop, queue=QUEUE) as kernel,
        open_kernel(database.dsn, shop, queue=QUEUE) as other,
    ):
        root = (await put(kernel, "tree.root", {})).action
        await dispatch(kernel)
        await called(kernel, root.action_id, 2)
        await dispatch(kernel)
        await called(kernel, root.action_id, 3)
        await declare_dead(kernel)
        await rescue(other.journal)
        await cancel_action(other.engine, ALICE, root.action_id, "not needed")
        assert 4 * ["CANCELLED"] == list((await family_states(other)).values())


async def test_a_parent_cancelled_through_another_server_does_not_fail_by_its_cancelled_child(
    database: Database,
) -> None:
    """It may hear of its child's end before it hears of the cancel."""
    hold = asyncio.Event()
    async with (
        open_kernel(database.dsn, tree(hold), queue=QUEUE) as kernel,
        open_kernel(database.dsn, tree(hold)) as other,
    ):
        let_children_stand_in_line(kernel)
        root = (await put(kernel, "tree.root", {})).action
        await dispatch(kernel)
        await called(kernel, root.action_id, 2)
        await cancel_action(other.engine, ALICE, root.action_id, "no more")
        await until(lambda: 0 == len(kernel.engine.runs))
        assert {"CANCELLED"} == set((await family_states(other)).values())


async def test_a_timeout_leaves_the_children_to_end_by_themselves(database: Database) -> None:
    """It is still wanted: whoever runs it again meets them."""
    began = asyncio.Event()
    hold = asyncio.Event()

    async def ship(context: Context) -> Any:
        return await context.call("charge", "work.unsafe", {})

    async def charge(context: Context) -> Any:
        began.set()
        await hold.wait()
        return {"order": "1"}

    shop = family(ship, child=charge)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await dispatch(kernel)
        await called(kernel, parent.action_id, 1)
        await dispatch(kernel)
        await began.wait()
        run_of = kernel.engine.runs.get(parent.action_id)
        assert run_of is not None
        assert run_of.task is not None
        run_of.stop(StopCause.TIMEOUT)
        await asyncio.wait([run_of.task])
        child = await read(kernel, child_id(parent.action_id, "charge"))
        assert (ActionState.RUNNING, None) == (child.state, child.cancel_requested_time_us)
        hold.set()
        await until(lambda: 0 == len(kernel.engine.runs))
        assert ActionState.SUCCEEDED is (await read(kernel, child.action_id)).state


async def test_no_child_slips_in_while_its_parent_is_cancelled(database: Database) -> None:
    """Whichever comes first, the mark or the child: in the end nothing below is open without a mark."""

    async def ship(context: Context) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(context.call(f"part.{number}", "work.read", {}))
                await asyncio.sleep(0)
        # However fast they are, the cancel finds it under way.
        await asyncio.Event().wait()

    shop = family(ship)
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, shop.app) as other,
    ):
        for number in range(ROUNDS):
            parent = (await put(kernel, "work.idempotent", {}, f"k{number}")).action
            await dispatch(kernel)
            await called(kernel, parent.action_id, 5 * number % 50)
            asked = (
                cancel_action(other.engine, ALICE, parent.action_id, "enough"),
                cancel_action(kernel.engine, ALICE, parent.action_id, "enough"),
            )
            await asyncio.gather(*asked)
            await until(lambda: 0 == len(kernel.engine.runs))
            assert 0 == await cancel_below(other.journal, parent)
            assert ActionState.AMBIGUOUS is (await read(other, parent.action_id)).state


async def test_a_child_is_cancelled_alone(database: Database) -> None:
    seen: list[str] = []

    async def ship(context: Context) -> Any:
        try:
            await context.call("charge", "work.unsafe", {})
        except placet.CallFailed as failed:
            seen.append(failed.outcome.kind)
        return {"order": "1"}

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        let_children_stand_in_line(kernel)
        calling = asyncio.create_task(run(kernel, "work.idempotent", {}, "k"))
        await shop.began.wait()
        parent = next(iter(kernel.engine.runs))
        await called(kernel, parent.action_id, 1)
        await cancel_action(kernel.engine, ALICE, child_id(parent.action_id, "charge"), "no")
        await calling
        assert ["cancelled"] == seen


async def test_a_plain_handler_that_waits_for_a_child_is_stopped(database: Database) -> None:
    """Its thread cannot be, so the call ends instead."""
    hold = asyncio.Event()
    app = tree(hold)
    ended: list[str] = []

    @app.tool("tree.plain", "read")
    def plain(context: SyncContext) -> Any:
        try:
            return context.call("leaf", "tree.leaf", {})
        except placet.Cancelled:
            ended.append("cancelled")
            raise

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "tree.plain", {})).action
        await dispatch(kernel)
        await called(kernel, parent.action_id, 1)
        await cancel_action(kernel.engine, ALICE, parent.action_id, "no")
        await until(lambda: 0 == len(kernel.engine.runs))
        assert ["cancelled"] == ended
        assert {"root": "CANCELLED", "leaf": "CANCELLED"} == await family_states(kernel)
        assert kernel.engine.threads.share(1.0) == kernel.engine.threads.free()


def test_what_never_began_is_tried_anew_by_a_later_attempt_and_what_began_is_an_answer() -> None:
    parent = Action.of_members({"effect_class": "IDEMPOTENT", "attempt": 2, "generation": 2})

    def again(state: ActionState, *, tries: int, generation: int, attempt: int, effect: Any = None) -> bool:
        child = parent.changed(state=state, attempt=tries, effect=effect)
        return is_superseded(parent, Tried(child, 1, generation, attempt))

    exhausted, failed = ActionState.EXHAUSTED, ActionState.FAILED
    assert again(exhausted, tries=0, generation=2, attempt=1)
    assert not again(exhausted, tries=0, generation=2, attempt=2)
    assert not again(exhausted, tries=1, generation=2, attempt=1)
    assert again(exhausted, tries=1, generation=1, attempt=1)
    assert again(failed, tries=1, generation=1, attempt=1, effect=EffectState.NOT_DONE)
    assert not again(failed, tries=1, generation=1, attempt=1, effect=EffectState.DONE)
    for state in (ActionState.SUCCEEDED, ActionState.AMBIGUOUS, ActionState.RUNNING, ActionState.QUEUED):
        assert not again(state, tries=1, generation=1, attempt=1)
