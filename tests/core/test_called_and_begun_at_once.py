"""What is COMPOSED and called runs here from the start, in the statement that admits it; and goes back into line as
what was submitted does.
"""

import asyncio
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet_server.core.admission.begin_here import begin_here
from placet_server.core.admission.pipeline import pass_gates
from placet_server.core.execution.pause import pause_queue, resume_queue
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.ownership import release_forgotten
from placet_server.core.recovery.rescue import rescue
from placet_server.loops.queue_runner import QueueRunner
from placet_server.model.action import Action
from placet_server.model.errors import Draining, StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store.batch_item import BegunRow, Written
from tests.core.kernels import (
    ALICE,
    QUEUE,
    call_of,
    declare_dead,
    only_action,
    open_kernel,
    output,
    places,
    read,
    run,
    states,
    until,
    until_stored,
)
from tests.core.test_lost_replies import age, make_lossy, once, sequences
from tests.postgres import Database

BEGUN = ["admitted", "attempt_started", "settled"]


class Planner:
    """`plan.run` waits for `gate`, calls one step, and counts its starts."""

    def __init__(self, **options: Any) -> None:
        self.starts: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.app = App("plan")

        @self.app.tool("plan.run", "composed", **options)
        async def run(context: Context) -> Any:
            self.starts.append(context.attempt)
            await self.gate.wait()
            return await context.call("look", "plan.find", {})

        @self.app.tool("plan.find", "read")
        async def find(context: Context) -> str:
            return "found"


async def called(kernel: Kernel, key: str = "k") -> Action:
    return (await run(kernel, "plan.run", {}, key)).action


@pytest.mark.both_servers
async def test_it_runs_without_anybody_who_takes_work_from_queues(database: Database) -> None:
    planner = Planner()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        done = await called(kernel)
        life = [name for _, name in await sequences(kernel, done.action_id)]
        assert ("found", [1], 1) == (output(done), planner.starts, done.attempt)
        assert BEGUN == [name for name in life if name != "effect_started"]
        assert ("default", []) == (done.queue, (await places(kernel))["queue_ready"])
        # With its key it is the same action.
        again = await run(kernel, "plan.run", {}, "k")
        assert (done.action_id, True, [1]) == (again.action.action_id, again.attached, planner.starts)


async def test_what_runs_is_the_row_as_it_is_stored(database: Database) -> None:
    planner = Planner()
    planner.gate.clear()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        calling = asyncio.create_task(called(kernel))
        await until(lambda: planner.starts == [1])
        (begun,) = list(kernel.engine.runs)
        assert begun.action is not None
        stored = await read(kernel, begun.action_id)
        assert stored.changed(input_json="") == begun.action.changed(input_json="")
        planner.gate.set()
        await calling


async def test_twenty_at_once_with_one_key_are_one(database: Database) -> None:
    planner = Planner()
    async with (
        open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, planner.app, queue=QUEUE) as other,
    ):
        done = await asyncio.gather(*(called(each) for each in (kernel, other) for _ in range(10)))
        assert 1 == len({action.action_id for action in done})
        assert ([1], ["found"]) == (planner.starts, list({output(action) for action in done}))


async def test_a_paused_queue_begins_none_and_loses_none(database: Database) -> None:
    planner = Planner()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        await pause_queue(kernel.journal, ALICE, "default", tenant="acme", reason="")
        calling = asyncio.create_task(called(kernel))
        await until_stored(lambda: _stands(kernel))
        assert (["QUEUED"], []) == (await states(kernel), planner.starts)
        await resume_queue(kernel.journal, "default", tenant="acme")
        assert "found" == output(await calling)
        assert [1] == planner.starts


async def _stands(kernel: Kernel) -> bool:
    return ["QUEUED"] == await states(kernel)


async def test_what_a_contract_limits_waits_for_its_turn(database: Database) -> None:
    planner = Planner(concurrency_max=1)
    planner.gate.clear()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        assert kernel.dispatcher is not None
        runner = kernel.engine.supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())
        calling = [asyncio.create_task(called(kernel, key)) for key in ("a", "b")]
        await until(lambda: len(planner.starts) == 1)
        planner.gate.set()
        assert ["found", "found"] == [output(action) for action in await asyncio.gather(*calling)]
        await kernel.engine.supervisor.stop([runner])


@pytest.mark.both_servers
async def test_one_whose_reply_is_lost_is_begun_by_somebody_else_or_again(database: Database) -> None:
    planner = Planner()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        make_lossy(kernel, once('"key_digest"'))
        with pytest.raises(StoreUnavailable):
            await called(kernel)
        assert ([], ["RUNNING"]) == (planner.starts, await states(kernel))
        await age(kernel)
        assert 1 == await release_forgotten(kernel.engine)
        done = await called(kernel)
        assert ("found", [2]) == (output(done), planner.starts)
        life = [name for _, name in await sequences(kernel, done.action_id)]
        assert ["admitted", "attempt_started", "requeued", "attempt_started", "settled"] == [
            name for name in life if name != "effect_started"
        ]


async def test_a_caller_who_leaves_while_it_is_written_leaves_it_running(database: Database) -> None:
    planner = Planner()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        await kernel.catalog.resolve("acme", "plan.run")
        calling = asyncio.create_task(called(kernel))
        await until(lambda: len(kernel.engine.runs) == 1)
        calling.cancel()
        await asyncio.wait([calling])
        await until(lambda: not len(kernel.engine.runs))
        assert [1] == planner.starts
        done = await called(kernel)
        assert (ActionState.SUCCEEDED, [1]) == (done.state, planner.starts)


async def test_a_boot_that_is_dead_begins_none(database: Database) -> None:
    planner = Planner()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("delete from instances")
        with pytest.raises(Draining):
            await called(kernel)
        assert ([], []) == (planner.starts, await states(kernel))


async def test_it_goes_back_into_line_when_its_server_dies(database: Database) -> None:
    planner = Planner()
    planner.gate.clear()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        calling = asyncio.create_task(called(kernel))
        await until(lambda: planner.starts == [1])
        (begun,) = list(kernel.engine.runs)
        calling.cancel()
        await asyncio.wait([calling])
        await declare_dead(kernel)
    planner.gate.set()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        assert 1 == (await rescue(kernel.journal)).actions
        assert ["QUEUED"] == await states(kernel)
        done = await called(kernel)
        assert (begun.action_id, "found", [1, 2]) == (done.action_id, output(done), planner.starts)


AWAY = "state = 'QUEUED', attempt = 0, lease_id = null"
ANOTHER_S = "lease_id = gen_random_uuid()"


@pytest.mark.parametrize("moved", [AWAY, ANOTHER_S], ids=["given away", "another's"])
async def test_one_that_is_somebody_else_s_by_its_reply_is_not_run_here_nor_stored_again(
    database: Database, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    planner = Planner()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        writer = kernel.journal.writer
        submit = writer.submit_begun

        def meets_its_row(row: BegunRow) -> asyncio.Future[Written | None]:
            async def written() -> Written | None:
                await submit(row)
                async with kernel.journal.pool.connection() as connection:
                    await connection.execute(f"update actions set {moved}")
                return None

            return asyncio.ensure_future(written())

        monkeypatch.setattr(writer, "submit_begun", meets_its_row)
        begun = await begin_here(kernel, await pass_gates(kernel, call_of("plan.run", {}, "k")))
        await until(lambda: not len(kernel.engine.runs))
        assert begun is not None
        assert (begun.action_id, []) == ((await only_action(kernel)).action_id, planner.starts)


async def test_nobody_waits_for_one_whose_server_ends(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner()
    async with open_kernel(database.dsn, planner.app, queue=QUEUE) as kernel:
        monkeypatch.setattr(
            kernel.journal.writer, "submit_begun", lambda _: asyncio.get_running_loop().create_future()
        )
        checked = await pass_gates(kernel, call_of("plan.run", {}, "k"))
        waiting = asyncio.ensure_future(begin_here(kernel, checked))
        await until(lambda: len(kernel.engine.runs) == 1)
        (run_of_it,) = list(kernel.engine.runs)
        assert run_of_it.task is not None
        run_of_it.task.cancel()
        await asyncio.wait([waiting], timeout=5)
        assert waiting.cancelled()
