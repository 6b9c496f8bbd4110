"""Three servers, two of which die and do not know it, callers who resend, cancels, rescuers: nothing may lie.

Each seed is another order of the same events; `PLACET_RACE_ROUNDS` seeds are tried."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from placet.context import Context
from placet.failure import Failure
from placet_server.core.execution.cancel import cancel_action, deliver_cancels
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.ownership import release_forgotten
from placet_server.core.recovery.rescue import close_unwanted, rescue
from placet_server.model.errors import PlacetError
from placet_server.model.lifecycle import TERMINAL
from placet_server.store import event as events
from tests.core.kernels import ALICE, declare_dead, open_kernel, run, until
from tests.core.workshop import CLASSES, MARKED, Workshop
from tests.postgres import Database

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "3"))
SETTINGS = ExecutionSettings(cancel_grace_seconds=0.2, reattach_grace_seconds=0.1, unowned_age_seconds=0.5)
CAPABILITIES = tuple(f"work.{name}" for name in (*CLASSES, *MARKED))
UNREPEATABLE = ("RECONCILABLE", "UNSAFE")


class World:
    """What really happened, beside what is recorded."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.effects: Counter[str] = Counter()
        self.shop = Workshop()
        self.shop.touch = False
        self.shop.script = self.handle

    async def handle(self, context: Context) -> str:
        """Touch the provider or not, and then end in one of the ways there are."""
        await asyncio.sleep(self.chance.random() * 0.02)
        if "marked" in context.capability and self.chance.random() < 0.7:
            await context.effect()
        elif "marked" in context.capability:
            return await self.end(context, touched=False)
        if self.chance.random() < 0.8:
            self.effects[context.action_id] += 1
            return await self.end(context, touched=True)
        return await self.end(context, touched=False)

    async def end(self, context: Context, *, touched: bool) -> str:
        await asyncio.sleep(self.chance.random() * 0.02)
        lot = self.chance.random()
        if not touched:
            if lot < 0.5:
                # Only who knows of no earlier attempt can say that nothing was done at all.
                category = "temporary" if lot < 0.3 or context.attempt > 1 else "permanent"
                raise Failure("no", category=category, effect="not_done")  # type: ignore[arg-type]
            raise ConnectionError
        if lot < 0.2:
            raise ConnectionError
        if lot < 0.3:
            await asyncio.sleep(0.3)
        return "done"


async def client(world: World, kernels: list[Kernel], number: int) -> None:
    """Sends one request again, under its key, until it knows or is tired."""
    capability = CAPABILITIES[number % len(CAPABILITIES)]
    for _ in range(5):
        kernel = world.chance.choice(kernels)
        call = asyncio.create_task(run(kernel, capability, {}, f"k{number}", time_left_seconds=1.0))
        if world.chance.random() < 0.1:
            await asyncio.sleep(world.chance.random() * 0.03)
            call.cancel()
        try:
            await call
            return
        except PlacetError as error:
            if error.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                return
        except asyncio.CancelledError:
            continue


async def canceller(world: World, kernels: list[Kernel]) -> None:
    """Cancels whatever is open, now and then."""
    for _ in range(10):
        await asyncio.sleep(world.chance.random() * 0.08)
        kernel = world.chance.choice(kernels)
        async with kernel.journal.pool.connection() as connection:
            ids = await connection.fetch(
                "select action_id::text from actions where settle_time is null limit 20"
            )
        if ids:
            await cancel_action(kernel.engine, ALICE, world.chance.choice(ids)["action_id"], "race")


async def forever(step: Callable[[], Awaitable[object]]) -> None:
    while True:
        await step()
        await asyncio.sleep(0.02)


async def one_round(database: Database, seed: int) -> None:
    world = World(seed)
    opened = [open_kernel(database.dsn, world.shop.app, settings=SETTINGS) for _ in range(3)]
    async with opened[0] as survivor, opened[1] as first, opened[2] as second:
        kernels = [survivor, first, second]
        steps = [
            lambda: rescue(survivor.journal),
            lambda: rescue(survivor.journal),
            lambda: close_unwanted(survivor.journal),
            *(lambda k=kernel: deliver_cancels(k.engine) for kernel in kernels),
            *(lambda k=kernel: release_forgotten(k.engine) for kernel in kernels),
        ]
        loops = [asyncio.create_task(forever(step)) for step in steps]

        async def deaths() -> None:
            for doomed in (first, second):
                await asyncio.sleep(0.05 + world.chance.random() * 0.2)
                await declare_dead(doomed)

        clients = [client(world, kernels, number) for number in range(42)]
        await asyncio.gather(*clients, deaths(), canceller(world, kernels))
        await until(lambda: not any(len(kernel.engine.runs) for kernel in kernels))
        await asyncio.sleep(0.1)
        for loop in loops:
            loop.cancel()
        assert [] == [
            e for e in await asyncio.gather(*loops, return_exceptions=True) if isinstance(e, Exception)
        ]
        await verify(world, survivor)


async def verify(world: World, kernel: Kernel) -> None:
    async with kernel.journal.pool.connection(30.0) as connection:
        rows = await connection.fetch("select *, action_id::text as id from actions")
        for row in rows:
            done = world.effects[row["id"]]
            story = (row["capability"], row["state"], row["effect"], row["cause"], row["attempt"], done)
            links = await events.list_receipts(connection, "acme", row["id"])
            assert list(range(1, row["sequence"] + 1)) == [link.sequence for link in links]
            assert [row["state"] in TERMINAL] == [any(link.type == "settled" for link in links)]
            assert 1 >= sum(link.type == "settled" for link in links)
            assert "RUNNING" != row["state"], story
            if row["effect_class"] == "READ":
                continue
            if row["effect_class"] in UNREPEATABLE:
                assert done <= 1, story
            if row["effect"] == "NOT_DONE":
                assert 0 == done, story


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_no_order_of_events_makes_the_record_lie(database: Database, seed: int) -> None:
    await one_round(database, seed)
