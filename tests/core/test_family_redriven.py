"""A redrive of a parent meets the children that it has: what is done stays done, what failed is tried again."""

import asyncio
from typing import Any

import pytest

import placet
from placet.context import Context
from placet_server.core.execution.ending import StopCause
from placet_server.core.kernel import Kernel
from placet_server.core.publication.lease import child_id
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.store import ambiguous, reconcile
from placet_server.store.connection import Connection
from tests.core.family import family
from tests.core.kernels import ALICE, QUEUE, dispatch, open_kernel, output, put, read, work_off
from tests.postgres import Database


async def again(kernel: Kernel, action: Action) -> str:
    """The rule against it, if there is one."""

    async def attempts(_: Action) -> int:
        return 3

    command = RedriveCommand(action_ids=(action.action_id,), reason="mended")
    (selected,) = await redrive(kernel.journal, ALICE, command, attempts)
    return selected.refused_rule


async def child_may_act(connection: Connection, action: Action) -> bool:
    """As the reconciler is told."""
    assert await reconcile.want(connection, "acme", action.action_id, now=None)
    (due,) = await reconcile.claim_due(
        connection,
        [reconcile.Kind("work.unsafe_marked", "1", "acme")],
        each_max=1,
        count_max=1,
        visible_seconds=0.0,
        now=None,
    )
    return due.child_may_act


async def test_what_succeeded_is_reused_and_what_failed_is_tried_under_a_new_path(database: Database) -> None:
    mended = False
    done: list[str] = []

    async def ship(context: Context) -> Any:
        await context.call("charge", "work.unsafe", {"order": "charge"})
        parcel = await context.call("parcel", "work.unsafe", {"order": "parcel" if mended else "none"})
        return {"order": str(parcel)}

    async def child(context: Context) -> Any:
        step = context.effect_key
        done.append(step)
        if len(done) in (2, 3):
            raise placet.Failure("no_box", effect="not_done")
        return {"order": "ok"}

    shop = family(ship, child=child, caller="work.unsafe_marked")
    shop.touch = False
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.unsafe_marked", {}, "k")).action
        await work_off(kernel)
        # The charge is done, so nobody says that nothing was: that is for a person to say.
        assert ActionState.AMBIGUOUS is (await read(kernel, parent.action_id)).state
        failed = await read(kernel, child_id(parent.action_id, "parcel"))
        assert ("child", ActionState.FAILED) == (await again(kernel, failed), failed.state)
        for _ in range(2):
            async with kernel.journal.pool.connection() as connection:
                await connection.execute(
                    "update actions set state = 'FAILED', effect = 'NOT_DONE', effect_unknown = false,"
                    " settle_time = now() where action_id = $1",
                    parent.action_id,
                )
            mended = True
            assert "" == await again(kernel, parent)
            await work_off(kernel)
        ended = await read(kernel, parent.action_id)
        assert (ActionState.SUCCEEDED, 3) == (ended.state, ended.generation)
        assert {"order": "{'order': 'ok'}"} == output(ended)
        tries = [await read(kernel, child_id(parent.action_id, f"parcel#{number}")) for number in (2, 3)]
        assert [("parcel#2", ActionState.FAILED), ("parcel#3", ActionState.SUCCEEDED)] == [
            (each.step_path, each.state) for each in tries
        ]
        # The charge once, the parcel three times, under keys of their own.
        assert 4 == len(done) == len(set(done))


async def test_a_parent_is_not_called_undone_before_its_children_have_ended(database: Database) -> None:
    hold = asyncio.Event()

    async def ship(context: Context) -> Any:
        asyncio.get_running_loop().call_soon(called.set)
        return await context.call("charge", "work.unsafe", {})

    async def charge(context: Context) -> Any:
        await hold.wait()
        return {"order": "1"}

    called = asyncio.Event()
    shop = family(ship, child=charge, caller="work.unsafe_marked")
    shop.touch = False
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.unsafe_marked", {}, "k")).action
        await dispatch(kernel)
        await called.wait()
        await kernel.journal.doorbell.wait(5)
        while child_id(parent.action_id, "charge") not in {r.action_id for r in kernel.engine.runs}:
            await dispatch(kernel)
        lost = kernel.engine.runs.get(parent.action_id)
        assert lost is not None
        assert lost.task is not None
        lost.stop(StopCause.TIMEOUT)
        await asyncio.wait([lost.task])
        assert ActionState.AMBIGUOUS is (await read(kernel, parent.action_id)).state
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update actions set deadline = now() - interval '1 day'")
            before = await ambiguous.find(connection, "acme", parent.action_id, grace_seconds=30.0, now=None)
            told = [await child_may_act(connection, parent)]
            hold.set()
            await work_off(kernel)
            after = await ambiguous.find(connection, "acme", parent.action_id, grace_seconds=30.0, now=None)
            told.append(await child_may_act(connection, parent))
        assert before is not None
        assert after is not None
        assert (True, False) == (before.attempt_may_act, after.attempt_may_act)
        assert [True, False] == told


@pytest.mark.parametrize("attempt", [1])
async def test_an_ambiguous_child_is_resolved_first(database: Database, attempt: int) -> None:
    kinds: list[str] = []

    async def ship(context: Context) -> Any:
        try:
            await context.call("charge", "work.unsafe", {})
        except placet.CallFailed as failed:
            kinds.append(failed.outcome.kind)
        raise placet.Failure("later", effect="not_done")

    async def charge(context: Context) -> Any:
        raise RuntimeError("who knows")

    shop = family(ship, child=charge)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        parent = await read(kernel, parent.action_id)
        child = await read(kernel, child_id(parent.action_id, "charge"))
        assert (ActionState.FAILED, ActionState.AMBIGUOUS) == (parent.state, child.state)
        assert ["ambiguous"] * attempt == kinds
        assert "child_ambiguous" == await again(kernel, parent)


async def test_what_is_in_doubt_below_a_child_that_has_ended_is_seen(database: Database) -> None:
    async def give_up(context: Context, step: str, capability: str) -> Any:
        with pytest.raises(placet.CallFailed):
            await context.call(step, capability, {})
        raise placet.Failure("later", effect="not_done")

    async def root(context: Context) -> Any:
        return await give_up(context, "middle", "work.unsafe_marked")

    async def below(context: Context) -> Any:
        if context.capability == "work.unsafe_marked":
            return await give_up(context, "leaf", "work.unsafe")
        raise RuntimeError("who knows")

    shop = family(root, child=below)
    shop.touch = False
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        top = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        middle = await read(kernel, child_id(top.action_id, "middle"))
        leaf = await read(kernel, child_id(middle.action_id, "leaf"))
        assert (ActionState.FAILED, ActionState.AMBIGUOUS) == (middle.state, leaf.state)
        assert "child_ambiguous" == await again(kernel, top)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update actions set deadline = now() - interval '1 day'")
            found = await ambiguous.find(connection, "acme", top.action_id, grace_seconds=30.0, now=None)
            await connection.execute(
                "insert into reconciles (tenant, action_id, capability, version, since_time, next_time)"
                " select tenant, action_id, capability, version, now(), now() from actions where action_id = $1",
                top.action_id,
            )
            due = await reconcile.claim_due(
                connection,
                [reconcile.Kind(top.capability, top.version, "acme")],
                each_max=1,
                count_max=1,
                visible_seconds=60.0,
                now=None,
            )
        assert found is not None
        assert (True, [True]) == (found.attempt_may_act, [each.child_may_act for each in due])
