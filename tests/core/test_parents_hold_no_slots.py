"""Parents that wait for children hold nothing that a child needs: neither slots nor threads, however many they are."""

import asyncio
import threading
from typing import Any

import pytest

from placet.app import App
from placet.context import Context, SyncContext
from placet_server.core.admission.dispatch import QueueSettings
from placet_server.core.admission.dispatch_slot import Slots
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import wait_action
from placet_server.loops.queue_runner import QueueRunner
from placet_server.model.lifecycle import ActionState
from tests.core.kernels import ALICE, open_kernel, put, until, work_off
from tests.postgres import Database

PARENTS = 6


def shop(kind: str) -> App:
    app = App("shop")

    if kind == "async":

        @app.tool("shop.parent", "read")
        async def parent(context: Context, number: int) -> Any:
            return await context.call("child", "shop.child", {"number": number})

        @app.tool("shop.child", "read")
        async def child(number: int) -> int:
            return number

    else:

        @app.tool("shop.parent", "read")
        def plain_parent(context: SyncContext, number: int) -> Any:
            return context.call("child", "shop.child", {"number": number})

        @app.tool("shop.child", "read")
        def plain_child(number: int) -> int:
            return number

    return app


async def ended(kernel: Kernel) -> list[tuple[str, str, int]]:
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select capability, state, count(*) from actions group by 1, 2 order by 1, 2"
        )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("slots", [1, 2])
async def test_as_many_parents_as_slots_and_more_all_end(database: Database, kind: str, slots: int) -> None:
    settings = ExecutionSettings(handler_threads_max=slots)
    queue = QueueSettings(poll_seconds=0.0, slots_max=slots)
    async with open_kernel(database.dsn, shop(kind), queue=queue, settings=settings) as kernel:
        for number in range(PARENTS):
            await put(kernel, "shop.parent", {"number": number})
        await work_off(kernel)
        assert [("shop.child", "SUCCEEDED", PARENTS), ("shop.parent", "SUCCEEDED", PARENTS)] == await ended(
            kernel
        )
        assert kernel.dispatcher is not None
        assert (0, False) == (kernel.dispatcher.running, kernel.dispatcher.is_busy)
        assert slots == kernel.engine.threads.free()


async def test_parents_of_a_limited_capability_that_calls_itself_all_end(database: Database) -> None:
    app = App("shop")
    at_once = at_once_max = 0

    @app.tool("shop.nest", "read", concurrency_max=1)
    async def nest(context: Context, depth: int = 2) -> Any:
        nonlocal at_once, at_once_max
        if depth:
            return await context.call("deeper", "shop.nest", {"depth": depth - 1})
        at_once += 1
        at_once_max = max(at_once, at_once_max)
        await asyncio.sleep(0)
        at_once -= 1
        return "done"

    async with open_kernel(database.dsn, app, queue=QueueSettings(poll_seconds=0.0, slots_max=2)) as kernel:
        assert kernel.dispatcher is not None
        kernel.engine.supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())
        roots = [(await put(kernel, "shop.nest", {})).action for _ in range(2)]
        for root in roots:
            await wait_action(kernel.journal, ALICE, root.action_id, 20)
        assert [("shop.nest", "SUCCEEDED", 6)] == await ended(kernel)
        assert 1 == at_once_max


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_a_plain_parent_that_is_stopped_while_another_has_its_slot_ends(
    database: Database, how: str
) -> None:
    app = App("shop")
    child_ends, other_runs, other_ends = threading.Event(), threading.Event(), threading.Event()

    @app.tool(
        "shop.parent", "read", concurrency_max=1, attempts_max=1, timeout=60 if how == "cancelled" else 1
    )
    def parent(context: SyncContext, waits: bool) -> Any:
        if waits:
            return context.call("child", "shop.child", {})
        other_runs.set()
        other_ends.wait(30)
        return "done"

    @app.tool("shop.child", "read")
    def child() -> str:
        child_ends.wait(30)
        return "done"

    async with open_kernel(database.dsn, app, queue=QueueSettings(poll_seconds=0.0)) as kernel:
        assert kernel.dispatcher is not None
        kernel.engine.supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())
        stopped = (await put(kernel, "shop.parent", {"waits": True})).action
        await until(lambda: len(kernel.engine.runs) == 2)
        other = (await put(kernel, "shop.parent", {"waits": False})).action
        await until(other_runs.is_set)
        child_ends.set()
        await until(lambda: len(kernel.engine.runs) == 2)
        if how == "cancelled":
            await cancel_action(kernel.engine, ALICE, stopped.action_id, "no more")
        try:
            ended = await wait_action(kernel.journal, ALICE, stopped.action_id, 10)
            assert ended.state in (ActionState.CANCELLED, ActionState.EXHAUSTED)
            assert other.action_id in [run.action_id for run in kernel.engine.runs]
        finally:
            other_ends.set()
        await wait_action(kernel.journal, ALICE, other.action_id, 10)


async def test_no_more_parents_wait_than_there_are_slots(database: Database) -> None:
    """Whose children no server here runs: beyond the slots parents stay in line, and cost no memory."""
    app = App("shop")
    hold = asyncio.Event()
    waiting = 0

    @app.tool("shop.parent", "read")
    async def parent(context: Context) -> Any:
        nonlocal waiting
        waiting += 1
        return await context.call("child", "shop.child", {})

    @app.tool("shop.child", "read")
    async def child() -> str:
        await hold.wait()
        return "done"

    queue = QueueSettings(poll_seconds=0.0, slots_max=2)
    async with open_kernel(database.dsn, app, queue=queue) as kernel:
        for _ in range(PARENTS):
            await put(kernel, "shop.parent", {})
        assert kernel.dispatcher is not None
        # Two children run and hold both slots; so no more than two parents wait, though theirs are free.
        for _ in range(20):
            await kernel.dispatcher.run_once()
            await asyncio.sleep(0.01)
        assert waiting <= 4
        hold.set()
        await work_off(kernel)
        assert PARENTS == waiting
        assert [("shop.child", "SUCCEEDED", PARENTS), ("shop.parent", "SUCCEEDED", PARENTS)] == await ended(
            kernel
        )


@pytest.mark.parametrize("concurrency_max", [None, 9])
async def test_no_more_parents_wait_for_what_runs_elsewhere_than_there_are_slots(
    database: Database, concurrency_max: int | None
) -> None:
    here, elsewhere = App("shop"), App("yard")
    waiting = 0

    @here.tool("shop.parent", "read", concurrency_max=concurrency_max)
    async def parent(context: Context) -> Any:
        nonlocal waiting
        waiting += 1
        return await context.call("child", "yard.child", {})

    @elsewhere.tool("yard.child", "read")
    async def child() -> str:
        return "done"

    queue = QueueSettings(poll_seconds=0.0, slots_max=2)
    async with (
        open_kernel(database.dsn, here, queue=queue) as kernel,
        open_kernel(database.dsn, elsewhere, queue=queue) as other,
    ):
        for _ in range(PARENTS):
            await put(kernel, "shop.parent", {})
        assert kernel.dispatcher is not None
        await kernel.dispatcher.run_once()
        await until(lambda: 2 == waiting and not kernel.dispatcher.running)
        await kernel.dispatcher.run_once()
        assert [("shop.parent", "QUEUED", PARENTS - 2), ("shop.parent", "RUNNING", 2)] == [
            row for row in await ended(kernel) if row[0] == "shop.parent"
        ]
        assert 2 == len(kernel.engine.runs)
        await work_off(other)


async def test_a_slot_is_counted_once_whatever_comes_first() -> None:
    rung = 0

    def ring() -> None:
        nonlocal rung
        rung += 1

    slots = Slots(2, ring)
    slot = slots.take("acme", 1)
    await slot.lend()
    assert (0, 1, 0, 2, 1) == (slots.running, slots.lent, slots.threads, slots.free(), rung)
    other = slots.take("acme", 0)
    await other.lend()
    assert slots.children_only
    await slot.take_back()
    await slot.take_back()
    assert (1, 1, 1) == (slots.running, slots.lent, slots.by_tenant["acme"])
    slot.end()
    # Cancelled before it had it back.
    other.end()
    await other.take_back()
    assert (0, 0, 0, {}) == (slots.running, slots.lent, slots.threads, dict(slots.by_tenant))
