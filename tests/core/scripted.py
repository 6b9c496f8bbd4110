"""Runs of an agent whose model is a script: what a program does with what its run remembers, without a provider."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from placet.app import App, Tool
from placet.standing import AsyncStanding
from placet.v1 import capability_pb2
from placet_server.core.execution.child import StepCall
from placet_server.core.execution.program import Lack, NamedModel
from placet_server.core.execution.stretch import Stretch, stretch_of
from placet_server.core.kernel import Kernel
from placet_server.harness.replay import replay, with_entry
from placet_server.harness.transcript import Stage, Transcript
from placet_server.model.capability import Capability
from placet_server.model.entry import Answered, Body, CallRecord, Opened, PinnedTool, Requested, Told
from placet_server.model.entry_text import entry_of
from placet_server.model.usage import Budget, Usage
from placet_server.store import run as runs

ASKED = {"parts": [{"text": "go"}]}
BUDGET = Budget(turns=9, tokens=10_000)
NAMES = ("plan.quick", "plan.paid", "plan.find")

Turns = Sequence[Sequence[str]]
Provider = Callable[[Stretch, int], Awaitable[None]]


async def answers_at_once(stretch: Stretch, turn: int) -> None:
    pass


class Scripted:
    """`plan.agent` calls what each of its turns names, all at once, and ends with the turn after them. `requests`: the
    turn of each request that the model got; `provider` is awaited in each. `dies_at`: the boundary, and the how manieth
    time, at which the process does nothing more; `log` names all that were reached. `told`: what the model was told, by
    turn. `program`, if it is set, is run instead.
    """

    are_here = True

    def __init__(self, *turns: Sequence[str], provider: Provider = answers_at_once) -> None:
        self.turns: Turns = turns
        self.provider = provider
        self.program: Callable[[Stretch], Awaitable[Any]] | None = None
        self.trouble = ""
        self.starts = 0
        self.requests: list[int] = []
        self.told: dict[int, list[str]] = {}
        self.log: list[tuple[str, int]] = []
        self.dies_at: tuple[str, int] | None = None
        self.dead = asyncio.Event()
        self.paid: list[str] = []
        self.done: list[str] = []
        self.app = App("plan")
        self._declare()

    def _declare(self) -> None:
        self.app.agent("plan.agent", model="test:one", tools=list(NAMES))

        @self.app.tool("plan.paid", "unsafe", approval="1 of role:finance")
        async def paid(order: str) -> str:
            self.paid.append(order)
            return f"paid {order}"

        @self.app.tool("plan.quick", "idempotent")
        async def quick(order: str) -> str:
            if order not in self.done:
                self.done.append(order)
            return f"done {order}"

        @self.app.tool("plan.find", "read")
        async def find(order: str) -> str:
            return f"found {order}"

    async def lacks(self, capability: Capability, tenant: str) -> Sequence[Lack]:
        return ()

    def missing(self, capability: Capability, tenant: str) -> str:
        return self.trouble

    async def check(self, capability: Capability, tenant: str, value: Any) -> None:
        pass

    def words_bytes_max(self, capability: Capability) -> int:
        return 0

    def problem(self, capability: Capability) -> str:
        return self.trouble

    def problems_of_files(self) -> Sequence[str]:
        return ()

    async def models(self) -> Sequence[NamedModel]:
        return ()

    def tool(self, capability: Capability) -> Tool | None:
        return Tool(
            name=capability.name,
            version=capability.version,
            is_async=True,
            wants_context=True,
            streaming=True,
            cancellable=True,
            effect_marked=False,
            call=self._run,
            capability=capability_pb2.Capability(),
        )

    def reached(self, boundary: str, capability: str) -> None:
        """The hook of a kernel's boundaries."""
        if capability == "plan.agent" and not self.dead.is_set():
            nth = 1 + sum(name == boundary for name, _ in self.log)
            self.log.append((boundary, nth))
            if (boundary, nth) == self.dies_at:
                self.dead.set()

    async def _run(self, context: AsyncStanding, text: str) -> Any:
        self.starts += 1
        stretch = stretch_of(context)
        if self.program is not None:
            return await self.program(stretch)
        remembered = await stretch.entries.read()
        return await _Loop(self, stretch, replay(remembered.entries, active_ms=remembered.active_ms)).run()


class _Loop:
    def __init__(self, script: Scripted, stretch: Stretch, state: Transcript) -> None:
        self.script = script
        self.stretch = stretch
        self.state = state

    async def run(self) -> Any:
        if self.state.stage is Stage.OPEN:
            await self.add(opened())
        while self.state.stage is not Stage.DONE:
            results = await self.results()
            turn, number = self.state.next_request
            prompt = f'{{"asked":{turn}}}'
            request = Requested(
                turn=turn, number=number, tokens=100, results=results, messages=(prompt,) * (number == 1)
            )
            await self.add(request, seen=[told.action_id for told in results])
            await self.reached("turn_sent")
            self.script.requests.append(turn)
            with self.stretch.asking():
                await self.script.provider(self.stretch, turn)
            await self.reached("turn_received")
            await self.add(self.answer(turn))
        assert self.state.output is not None
        return json.loads(self.state.output)

    async def add(self, body: Body, seen: Sequence[str] = ()) -> None:
        entry = entry_of(body)
        after = with_entry(self.state, entry).is_active(self.state.counters.active_ms + 7)
        ahead = after.pending is not None
        await self.stretch.entries.append(entry, after.counters, seen=seen, ahead=ahead)
        self.state = after
        await self.live()

    async def reached(self, boundary: Any) -> None:
        self.stretch.reached(boundary)
        await self.live()

    async def live(self) -> None:
        if self.script.dead.is_set():
            await asyncio.Event().wait()

    async def results(self) -> tuple[Told, ...]:
        """Of the calls of the turn before."""
        if self.state.pending is None:
            return ()
        wanted = [
            StepCall(
                step=call.step,
                capability=call.tool.name,
                version=call.tool.version,
                input_json=call.input_json,
            )
            for call in self.state.pending.steps
            if call.tool is not None
        ]
        ends = await self.stretch.call_all(wanted)
        await self.live()
        self.script.told[self.state.turn] = [str(end.output_json) for end in ends]
        return tuple(
            Told(call=number, action_id=end.outcome.action_id, kind=end.outcome.kind.value)
            for number, end in enumerate(ends, start=1)
        )

    def answer(self, turn: int) -> Answered:
        names = self.script.turns[turn - 1] if turn <= len(self.script.turns) else ()
        calls = tuple(
            CallRecord(
                call=number,
                id=f"call-{turn}-{number}",
                tool=name,
                step=f"turn/{turn}/call/{number}",
                input=f'{{"order":"{turn}-{number}"}}',
            )
            for number, name in enumerate(names, start=1)
        )
        return Answered(
            turn=turn,
            usage=Usage(input_tokens=10, output_tokens=5),
            cost_micros=3,
            finish="stop",
            calls=calls,
            output=None if calls else '{"parts":[{"text":"over"}]}',
            messages=(f'{{"answered":{turn}}}',),
        )


def opened() -> Opened:
    tools = tuple(PinnedTool(alias=name, name=name, version="1", contract_digest="00") for name in NAMES)
    return Opened(spec_digest="00", model="test:one", tools=tools, budget=BUDGET)


async def entries(kernel: Kernel, action_id: str) -> list[tuple[int, str, int, int]]:
    """Ordinal, type, turn and attempt of each."""
    async with kernel.journal.pool.connection() as connection:
        found = await runs.list_entries(
            connection, "acme", action_id, after_ordinal=0, count_max=1000, bytes_max=2**20
        )
    return [(each.ordinal, each.type.value, each.turn, each.attempt) for each in found]


async def bodies(kernel: Kernel, action_id: str, *types: str) -> list[str]:
    async with kernel.journal.pool.connection() as connection:
        found = await runs.list_entries(
            connection, "acme", action_id, after_ordinal=0, count_max=1000, bytes_max=2**20
        )
    return [each.body for each in found if each.type.value in types]


async def age(kernel: Kernel) -> None:
    """What is to be tried again after a pause is ready."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update actions set ready_time = now() where state = 'QUEUED'")
        await connection.execute("update queue_delayed set ready_time = now()")
        await connection.execute(
            "with d as (delete from queue_delayed returning *) "
            "insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time) "
            "select tenant, action_id, queue, capability, version, priority, ready_time from d"
        )
