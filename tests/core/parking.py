"""A family whose parent is COMPOSED: `plan.run` calls steps, some of which people have to say yes to."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from placet.app import App
from placet.context import Context
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.loops.queue_runner import QueueRunner
from placet_server.model.action import Action
from tests.core.kernels import ALICE, read, until_stored

Plan = Callable[[Context], Awaitable[Any]]


class Planned:
    """`plan.run` does what `plan` says, each start of which is counted in `starts` by its attempt; `plan.paid` waits
    for a yes and counts its order in `paid`; `plan.quick` counts in `done` and ends at once; `plan.find` reads.
    """

    def __init__(self, plan: Plan, **options: Any) -> None:
        self.starts: list[int] = []
        self.paid: list[str] = []
        self.done: list[str] = []
        self.app = App("plan")

        @self.app.tool("plan.run", "composed", streaming=True, **options)
        async def run(context: Context) -> Any:
            self.starts.append(context.attempt)
            return await plan(context)

        @self.app.tool("plan.paid", "unsafe", approval="1 of role:finance")
        async def paid(order: str) -> str:
            self.paid.append(order)
            return f"paid {order}"

        @self.app.tool("plan.quick", "unsafe")
        async def quick(order: str) -> str:
            self.done.append(order)
            return f"done {order}"

        @self.app.tool("plan.find", "read")
        async def find(order: str) -> str:
            return f"found {order}"


async def parked(kernel: Kernel, action_id: str) -> Action:
    """Once it is."""

    async def is_parked() -> bool:
        return (await read(kernel, action_id)).is_parked

    await until_stored(is_parked)
    return await read(kernel, action_id)


async def told(kernel: Kernel, action_id: str) -> list[str]:
    """The types of its events, in order."""
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select type from events where action_id = $1 order by sequence", action_id
        )
    return [row["type"] for row in rows]


async def steps(kernel: Kernel, parent_id: str) -> list[Action]:
    """By step."""
    async with kernel.journal.pool.connection() as connection:
        rows = await connection.fetch(
            "select action_id::text from actions where parent_id = $1 order by step_path", parent_id
        )
    return [await read(kernel, row["action_id"]) for row in rows]


async def wakes(kernel: Kernel) -> int:
    async with kernel.journal.pool.connection() as connection:
        count: int = await connection.fetchval("select count(*) from wakes")
    return count


@asynccontextmanager
async def serving(kernel: Kernel) -> AsyncIterator[None]:
    """Meanwhile what stands in line is run."""
    assert kernel.dispatcher is not None
    runner = QueueRunner(kernel.dispatcher, kernel.journal.doorbell)
    task = kernel.engine.supervisor.start(runner.run())
    try:
        yield
    finally:
        await kernel.engine.supervisor.stop([task])


async def again(kernel: Kernel, action_id: str) -> str:
    """The rule against it, if there is one."""

    async def attempts(_: Action) -> int:
        return 3

    command = RedriveCommand(action_ids=(action_id,), reason="mended")
    (selected,) = await redrive(kernel.journal, ALICE, command, attempts)
    return selected.refused_rule
