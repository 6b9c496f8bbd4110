"""A child that can run where its parent does begins as it is admitted; one that cannot stands in line, as others do."""

import asyncio
import re
from contextvars import ContextVar
from typing import Any

import pytest

from placet.context import Context
from placet_server.core.admission import child as admission_of_children
from placet_server.core.admission.dispatch import QueueSettings
from placet_server.core.admission.pipeline import Checked, check
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.execution.pause import pause_queue, resume_queue
from placet_server.core.kernel import Kernel
from placet_server.core.publication.lease import child_id
from placet_server.core.recovery.ownership import release_forgotten
from placet_server.model.action import Action, Submission
from placet_server.model.gate_errors import CapabilityNotFound
from placet_server.model.lifecycle import ActionState
from placet_server.model.line import Line, ReadyLine
from placet_server.store.batch_item import EntryItem
from tests.core.family import family
from tests.core.kernels import (
    ALICE,
    QUEUE,
    dispatch,
    open_kernel,
    output,
    places,
    put,
    read,
    run,
    states,
    until,
    until_stored,
    work_off,
)
from tests.core.scripted import ASKED, Scripted
from tests.core.test_lost_replies import make_lossy, once
from tests.postgres import Database

SLOW = Submission(queue="slow")


async def calls_one(context: Context) -> Any:
    return await context.call("charge", "work.unsafe", {"order": "7"})


async def child_of(kernel: Kernel, parent: Action, step: str = "charge") -> Action:
    return await read(kernel, child_id(parent.action_id, step))


async def types(kernel: Kernel, action: Action) -> list[str]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select type from events where action_id = $1 order by sequence", action.action_id
        )
    return [row["type"] for row in rows]


async def test_it_runs_without_anybody_who_takes_work_from_queues(database: Database) -> None:
    shop = family(calls_one)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        done = (await run(kernel, "work.idempotent", {}, "k")).action
        child = await child_of(kernel, done)
        assert ({"order": "1"}, 1) == (output(done), shop.effects)
        assert (ActionState.SUCCEEDED, 1, "default") == (child.state, child.attempt, child.queue)
        assert ["admitted", "attempt_started", "settled"] == await types(kernel, child)
        assert kernel.dispatcher is not None
        await until(lambda: not kernel.dispatcher.is_busy)
        assert [] == (await places(kernel))["queue_ready"]


@pytest.mark.parametrize("capability", ["work.unsafe", "work.read", "work.idempotent", "work.reconcilable"])
async def test_what_runs_is_the_row_as_it_is_stored(database: Database, capability: str) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    async def ship(context: Context) -> Any:
        return await context.call("charge", capability, {"order": "7"}, timeout=5)

    async def charge(context: Context) -> Any:
        began.set()
        await gate.wait()
        return {"order": "1"}

    caller = "work.unsafe" if capability == "work.idempotent" else "work.idempotent"
    shop = family(ship, caller=caller, child=charge)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        running = asyncio.create_task(run(kernel, caller, {}, "k"))
        await began.wait()
        (child,) = [each for each in kernel.engine.runs if each.work.capability.name == capability]
        stored, known = await read(kernel, child.action_id), child.action
        assert known is not None
        # Which the store rounds.
        assert stored == known.changed(queue_delay_seconds=stored.queue_delay_seconds)
        gate.set()
        await running


async def test_of_a_paused_queue_none_begins(database: Database) -> None:
    may_call = asyncio.Event()

    async def ship(context: Context) -> Any:
        await may_call.wait()
        return await calls_one(context)

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k", place=SLOW)).action
        await dispatch(kernel)
        await pause_queue(kernel.journal, ALICE, "slow", tenant="acme", reason="r")
        may_call.set()
        await until_stored(lambda: stands(kernel, parent))
        await dispatch(kernel)
        assert ActionState.QUEUED is (await child_of(kernel, parent)).state
        # Of the queue, only the parent has begun.
        assert 1 == await counted(kernel)
        await resume_queue(kernel.journal, "slow", tenant="acme")
        await work_off(kernel)
        assert [ActionState.SUCCEEDED] * 2 == [
            (await read(kernel, parent.action_id)).state,
            (await child_of(kernel, parent)).state,
        ]
        assert 2 == await counted(kernel)


async def counted(kernel: Kernel) -> int:
    """How many were taken from queues."""
    assert kernel.dispatcher is not None
    await kernel.dispatcher.write_counts()
    async with kernel.journal.pool.connection() as connection:
        return int(await connection.fetchval("select sum(claimed) from queue_counts"))


async def test_it_begins_while_most_slots_are_free_though_others_wait(database: Database) -> None:
    shop = family(calls_one)
    async with open_kernel(database.dsn, shop.app, queue=QueueSettings()) as kernel:
        dispatcher = kernel.dispatcher
        assert dispatcher is not None
        resolved = await kernel.catalog.resolve("acme", "work.unsafe", "1")
        tool = kernel.engine.handlers.find("work.unsafe", "1", "acme")
        assert tool is not None
        others = Line("default", "work.read", "1", "acme")
        await dispatcher.run_once()
        dispatcher._lines.known[others] = ReadyLine(others, 5, 0)
        taken = []
        while (slot := dispatcher.slot_for_child(resolved.capability, tool, "acme")) is not None:
            taken.append(slot)
        assert QueueSettings().slots_max == 2 * len(taken)


async def test_it_knows_nothing_of_what_its_parent_keeps_for_itself(database: Database) -> None:
    kept: ContextVar[str] = ContextVar("kept", default="")

    async def ship(context: Context) -> Any:
        kept.set("the parent's")
        return await calls_one(context)

    async def charge(context: Context) -> Any:
        return {"order": kept.get()}

    shop = family(ship, child=charge)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        assert {"order": ""} == output((await run(kernel, "work.idempotent", {}, "k")).action)


async def test_one_that_cannot_be_begun_keeps_no_slot(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ship(context: Context) -> Any:
        with pytest.raises(RuntimeError, match="broken"):
            await calls_one(context)
        return {"order": "1"}

    shop = family(ship)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:

        def broken(_: object) -> Any:
            raise RuntimeError("broken")

        monkeypatch.setattr(kernel.journal.writer, "admit_child", broken)
        done = (await run(kernel, "work.idempotent", {}, "k")).action
        assert ActionState.SUCCEEDED is done.state
        assert kernel.dispatcher is not None
        assert not kernel.dispatcher.is_busy


async def stands(kernel: Kernel, parent: Action) -> bool:
    return child_id(parent.action_id, "charge") in (await places(kernel))["queue_ready"]


async def test_without_a_free_slot_it_stands_in_line(database: Database) -> None:
    """Both of them wait for the one slot, which is the first one's who comes."""
    gate = asyncio.Event()

    async def ship(context: Context) -> Any:
        async with asyncio.TaskGroup() as group:
            for name in ("charge", "pack"):
                group.create_task(context.call(name, "work.unsafe", {}))
        return {"order": "1"}

    async def charge(context: Context) -> Any:
        await gate.wait()
        return {"order": "1"}

    shop = family(ship, child=charge)
    one = QueueSettings(poll_seconds=0.0, slots_max=1)
    async with open_kernel(database.dsn, shop.app, queue=one) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await dispatch(kernel)
        await until_stored(lambda: stood(kernel, 2))
        await dispatch(kernel)
        assert ["QUEUED", "RUNNING", "RUNNING"] == sorted(await states(kernel))
        gate.set()
        await work_off(kernel)
        assert ActionState.SUCCEEDED is (await read(kernel, parent.action_id)).state


async def stood(kernel: Kernel, children: int) -> bool:
    return 1 + children == len(await states(kernel))


async def test_a_parent_that_stops_as_it_calls_leaves_nothing_that_runs(database: Database) -> None:
    async def ship(context: Context) -> Any:
        return await context.call("charge", "work.read", {})

    async def hangs(context: Context) -> Any:
        await asyncio.Event().wait()

    shop = family(ship, caller="work.composed", child=hangs)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        async with kernel.journal.pool.tx() as connection:
            await connection.execute("lock table lineage in exclusive mode")
            parent = (await put(kernel, "work.composed", {}, "k")).action
            await dispatch(kernel)
            await until(lambda: 2 == len(kernel.engine.runs))
            running = kernel.engine.runs.get(parent.action_id)
            assert running is not None
            running.stop(StopCause.CANCELLED_BY_CALLER)
        await until(lambda: not len(kernel.engine.runs))
        assert [ActionState.CANCELLED] * 2 == [
            (await child_of(kernel, parent)).state,
            (await read(kernel, parent.action_id)).state,
        ]


async def test_one_whose_admission_had_no_reply_runs_once(database: Database) -> None:
    shop = family(calls_one)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        make_lossy(kernel, once('"step":"charge"'))
        done = (await run(kernel, "work.idempotent", {}, "k")).action
        assert ({"order": "1"}, 1) == (output(done), shop.effects)
        assert 1 == (await child_of(kernel, done)).attempt
        assert 0 == await release_forgotten(kernel.engine)


async def test_one_whose_admission_had_no_reply_is_not_begun_again_once_it_ended_by_a_fault(
    database: Database,
) -> None:
    shop = family(lambda context: context.call("charge", "work.read", {}))
    now = ExecutionSettings(unowned_age_seconds=0.0)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, settings=now) as kernel:
        asked: list[str] = []

        def lose(arguments: str) -> bool:
            if '"step":"charge"' not in arguments:
                return False
            asked.extend(re.findall('"lease_id":"([^"]+)"', arguments))
            kernel.engine.runs.abandoned.update(asked)
            return len(asked) == 1

        make_lossy(kernel, lose)
        running = asyncio.create_task(run(kernel, "work.idempotent", {}, "k"))
        await until(lambda: 2 == len(asked) and 1 == len(kernel.engine.runs))
        assert 1 == await release_forgotten(kernel.engine)
        running.cancel()


async def test_one_whose_admission_had_no_reply_is_waited_for_though_it_would_be_refused_by_now(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, asked = family(calls_one), []

    async def allowed_once(*arguments: Any, **options: Any) -> Checked:
        asked.append(options)
        if len(asked) > 1:
            raise CapabilityNotFound(capability="work.unsafe", version="1")
        return await check(*arguments, **options)

    now = ExecutionSettings(unowned_age_seconds=0.0)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, settings=now) as kernel:
        make_lossy(kernel, once('"step":"charge"'))
        monkeypatch.setattr(admission_of_children, "check", allowed_once)
        running = asyncio.create_task(run(kernel, "work.idempotent", {}, "k"))
        await until(lambda: 2 == len(asked))
        assert 1 == await release_forgotten(kernel.engine)
        await work_off(kernel)
        done = (await running).action
        assert (ActionState.SUCCEEDED, 1, 1) == (done.state, done.attempt, shop.effects)


async def test_no_call_is_made_of_an_answer_that_the_store_does_not_take(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for in the same breath."""
    script = Scripted(["plan.quick", "plan.find"])
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        append = kernel.journal.writer.append

        def rejecting(entry: EntryItem) -> asyncio.Future[Any]:
            if entry["type"] != "answered":
                return append(entry)
            rejected = asyncio.get_running_loop().create_future()
            rejected.set_exception(RuntimeError("rejected"))
            return rejected

        monkeypatch.setattr(kernel.journal.writer, "append", rejecting)
        await put(kernel, "plan.agent", ASKED, "k")
        await dispatch(kernel)
        await until(lambda: not len(kernel.engine.runs))
        assert ([1], []) == (script.requests, script.done)
        assert 1 == len(await states(kernel))
