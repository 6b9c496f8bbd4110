"""SIGKILL of who runs an agent, at every boundary of its run: whoever goes on asks the model for nothing that was
answered, makes each call once, asks people once, and ends as a run that nobody disturbed.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from placet.testing.model_servers import KEY, OpenAIServer, Say, call
from placet_server.core.kernel import Kernel
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from tests.core.agents import KEY_VARIABLE, Shop, open_shop, said, spent
from tests.core.kernels import output, put, read, work_off
from tests.core.parking import parked, steps
from tests.core.people import vote
from tests.core.scripted import age, bodies
from tests.examples import LONG
from tests.postgres import Database

SCRIPT = [
    Say("I look.", call("shop-find", order="A-1"), call("shop-count", order="A-1")),
    Say("I pay.", call("shop-pay", order="A-1")),
    Say("Over."),
]
# Nobody has the answer of what was asked for.
UNANSWERED = ("turn_requested", "turn_sent", "turn_received")
Work = Callable[[str], Awaitable[int]]


class Cut(NamedTuple):
    """`paid`: after people have said yes. `nth`: within its stretch."""

    paid: bool
    boundary: str
    nth: int


@asynccontextmanager
async def mortals(dsn: str, address: str) -> AsyncIterator[Work]:
    """Has a process work everything off; how it ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.faults.mortal_agent", dsn, address),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    reader, writer = process.stdout, process.stdin

    async def work(boundary: str) -> int:
        writer.write(f"{boundary or '-'}\n".encode())
        await writer.drain()
        return int(await asyncio.wait_for(reader.readline(), 60))

    try:
        yield work
    finally:
        writer.close()
        await asyncio.wait_for(process.wait(), 30)


async def begun(kernel: Kernel, key: str) -> Action:
    return (await put(kernel, "shop.helper", {"parts": [{"text": f"Help {key}."}]}, key)).action


async def allow(kernel: Kernel, action_id: str) -> None:
    shown = await with_family_waits(kernel.journal, await parked(kernel, action_id))
    await vote(kernel, shown.waits[0].approval_id)


def asked_for(server: OpenAIServer, key: str) -> list[int]:
    return [request.turn for request in server.requests if f"Help {key}." in request.body.decode()]


async def undisturbed(database: Database, server: OpenAIServer) -> tuple[list[Cut], list[str]]:
    """Every boundary that it comes to, and its answers."""
    log: list[Cut] = []
    is_paid = False

    def note(name: str, capability: str) -> None:
        if capability == "shop.helper":
            nth = 1 + sum(cut.paid == is_paid and cut.boundary == name for cut in log)
            log.append(Cut(is_paid, name, nth))

    async with open_shop(database.dsn, Shop(), server, hook=note) as kernel:
        action = await begun(kernel, "whole")
        await work_off(kernel)
        is_paid = True
        await allow(kernel, action.action_id)
        await work_off(kernel)
        assert said("Over.") == output(await read(kernel, action.action_id))
        assert [1, 2, 3] == asked_for(server, "whole")
        cuts = [cut for cut in log if cut.boundary.startswith(("turn_", "run_", "call", "parked"))]
        return cuts, await bodies(kernel, action.action_id, "answered")


async def test_a_run_that_is_killed_anywhere_is_as_one_that_was_not(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    async with OpenAIServer(SCRIPT) as server:
        cuts, answers = await undisturbed(database, server)
        assert {"run_opened", "turn_answered", "calls_admitted", "call_told", "parked", *UNANSWERED} == {
            cut.boundary for cut in cuts
        }
        chosen = cuts if LONG else list({(cut.paid, cut.boundary): cut for cut in cuts}.values())
        async with (
            mortals(database.dsn, server.base_url) as work,
            open_shop(database.dsn, Shop(), server) as kernel,
        ):
            for number, cut in enumerate(chosen):
                await _killed(kernel, server, work, cut, f"key{number}", answers)


async def _killed(
    kernel: Kernel, server: OpenAIServer, work: Work, cut: Cut, key: str, answers: list[str]
) -> None:
    action = await begun(kernel, key)
    if cut.paid:
        await work_off(kernel)
        await allow(kernel, action.action_id)
    assert -signal.SIGKILL == await work(f"{cut.boundary}:shop.helper:{cut.nth}"), cut
    async with kernel.journal.pool.connection() as connection:
        await connection.execute(
            "update instances set state = 'DEAD', dead_time = now() where boot_id <> $1", kernel.boot_id
        )
    await rescue(kernel.journal)
    await age(kernel)
    await work_off(kernel)
    if not cut.paid:
        await allow(kernel, action.action_id)
        await work_off(kernel)
    ended = await read(kernel, action.action_id)
    assert (ActionState.SUCCEEDED, said("Over.")) == (ended.state, output(ended)), cut
    turn = 3 if cut.paid else cut.nth
    # The request that the provider had got, and nobody had the answer of.
    again = [turn] if cut.boundary == "turn_received" else []
    assert sorted([1, 2, 3, *again]) == sorted(asked_for(server, key)), cut
    assert answers == [
        body.replace(key, "whole") for body in await bodies(kernel, action.action_id, "answered")
    ]
    assert 3 == len(await steps(kernel, action.action_id)), cut
    counters = await spent(kernel, action.action_id)
    more = 1 if cut.boundary in UNANSWERED else 0
    assert (3, 3 + more, 3) == (counters.turns, counters.requests, counters.calls), cut
    reserved = [json.loads(body)["tokens"] for body in await bodies(kernel, action.action_id, "requested")]
    assert counters.reserved_tokens == (reserved[turn - 1] if more else 0), cut
