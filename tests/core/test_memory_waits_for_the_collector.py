"""What has ended holds nothing that only the collector of cycles would find: it looks at what is old once in millions
of objects, and what thousands of runs have left by then is never one piece again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from placet.agent import Budget
from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet.testing.model_servers import KEY, AnthropicServer, ModelServer, OpenAIServer, Say, call
from placet_server.core.kernel import Kernel
from placet_server.core.publication.waits import with_family_waits
from placet_server.model.errors import PlacetError
from tests.core.agents import KEY_VARIABLE, Shop, asked, open_shop
from tests.core.garbage import left_behind
from tests.core.kernels import QUEUE, open_kernel, put, run, work_off
from tests.core.parking import parked
from tests.core.people import vote
from tests.postgres import Database

AT_ONCE = 5
# Some of what ends does it after whoever asked was told.
SETTLE_SECONDS = 0.3


def shop() -> App:
    app = App("t")

    @app.tool("t.async", "idempotent")
    async def simple(order: str) -> str:
        return order

    @app.tool("t.plain", "idempotent")
    def plain(order: str) -> str:
        return order

    @app.tool("t.limited", "idempotent", concurrency_max=1)
    async def limited(order: str) -> str:
        await asyncio.sleep(0.1)
        return order

    @app.tool("t.fails", "idempotent", attempts_max=1)
    async def fails(order: str) -> str:
        raise Failure("bad", "it is bad")

    @app.tool("t.breaks", "idempotent", attempts_max=1)
    async def breaks(order: str) -> str:
        raise ValueError(order)

    @app.tool("t.speaks", "unsafe", streaming=True)
    async def speaks(context: Context, order: str) -> str:
        await context.effect()
        await context.chunk("said")
        await context.checkpoint("operation", {"at": 1})
        return order

    @app.tool("t.slow", "read")
    async def slow(order: str) -> None:
        await asyncio.sleep(60)

    @app.tool("t.paid", "unsafe", approval="1 of role:finance")
    async def paid(order: str) -> str:
        return order

    @app.tool("t.calls", "composed", concurrency_max=AT_ONCE)
    async def calls(context: Context, order: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(context.call("a", "t.async", {"order": order}))
            group.create_task(context.call("b", "t.speaks", {"order": order}))

    @app.tool("t.fails_below", "composed", attempts_max=1)
    async def fails_below(context: Context, order: str) -> None:
        await context.call("a", "t.fails", {"order": order})

    @app.tool("t.refused_below", "composed")
    async def refused_below(context: Context, order: str) -> None:
        await context.call("a", "t.nobody", {"order": order})

    @app.tool("t.waits_below", "composed")
    async def waits_below(context: Context, order: str) -> None:
        await context.call("a", "t.paid", {"order": order})

    return app


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


async def executed(kernel: Kernel, capability: str, key: str) -> None:
    try:
        await run(kernel, capability, {"order": "1"}, key, time_left_seconds=1.0)
    except PlacetError as error:
        # As whoever answers a call does.
        error.with_traceback(None)


@pytest.mark.parametrize(
    "capability",
    [
        "t.async",
        "t.plain",
        "t.limited",
        "t.fails",
        "t.breaks",
        "t.speaks",
        "t.slow",
        "t.calls",
        "t.fails_below",
        "t.refused_below",
        "t.waits_below",
    ],
)
async def test_an_action_leaves_no_cycle_however_it_ends(database: Database, capability: str) -> None:
    async with open_kernel(database.dsn, shop(), queue=QUEUE) as kernel:
        # What is made once, and stays.
        for key in ("first", "second"):
            await put(kernel, capability, {"order": "1"}, f"q-{key}")
            if capability != "t.slow":
                await work_off(kernel)
            await executed(kernel, capability, key)
        with left_behind() as cycles:
            await asyncio.gather(*(executed(kernel, capability, f"k{n}") for n in range(AT_ONCE)))
            await asyncio.sleep(SETTLE_SECONDS)
        assert [] == cycles
        if capability == "t.slow":
            return
        with left_behind() as cycles:
            for number in range(AT_ONCE):
                await put(kernel, capability, {"order": "1"}, f"q{number}")
            await work_off(kernel)
            await asyncio.sleep(SETTLE_SECONDS)
        assert [] == cycles


async def test_callers_that_leave_leave_no_cycle(database: Database) -> None:
    async with open_kernel(database.dsn, shop()) as kernel:
        await executed(kernel, "t.async", "first")
        with left_behind() as cycles:
            calls = [
                asyncio.ensure_future(run(kernel, "t.slow", {"order": "1"}, f"k{n}")) for n in range(AT_ONCE)
            ]
            await asyncio.sleep(SETTLE_SECONDS)
            for each in calls:
                each.cancel()
            await asyncio.wait(calls)
            del calls, each
            await asyncio.sleep(SETTLE_SECONDS)
        assert [] == cycles


LOOKS = Say("I look.", call("shop-find", order="A-1"), call("shop-count", order="A-2"))
PAYS = Say("I pay.", call("shop-pay", order="A-1"), call("shop-pay", order="A-2"))
OVER = Say("Over.")


@pytest.mark.parametrize("wire", [OpenAIServer, AnthropicServer])
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ([OVER], {}),
        ([LOOKS, OVER], {}),
        ([Say("I do.", call("shop-nothing", order="A-1")), OVER], {}),
        ([LOOKS, OVER], {"budget": Budget(turns=1)}),
        ([PAYS, OVER], {}),
    ],
    ids=["answers", "calls", "calls what is not there", "runs out", "parks"],
)
async def test_a_run_leaves_no_cycle_however_it_ends(
    database: Database, wire: type[ModelServer], script: list[Say], options: dict[str, Any]
) -> None:
    shop = Shop(**options)
    async with wire(script) as server, open_shop(database.dsn, shop, server) as kernel:
        waiting = [await asked(kernel, f"first{n}") for n in range(2)]
        with left_behind() as cycles:
            for number in range(AT_ONCE):
                await asked(kernel, f"k{number}")
            await asyncio.sleep(SETTLE_SECONDS)
        assert [] == cycles
        if script[0] is not PAYS:
            return
        with left_behind() as cycles:
            for each in waiting:
                shown = await with_family_waits(kernel.journal, await parked(kernel, each.action_id))
                for wait in shown.waits:
                    await vote(kernel, wait.approval_id)
                await work_off(kernel)
            await asyncio.sleep(SETTLE_SECONDS)
        assert [] == cycles
