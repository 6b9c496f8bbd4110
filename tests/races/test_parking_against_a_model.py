"""Steps end, people vote, somebody cancels, servers die and looks are lost, in any order: a composed parent ends once,
its steps are what it calls them in its output, and it never waits for nothing.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from placet.app import App
from placet.context import Context
from placet.failure import CallFailed
from placet_server.core.decision.expire import pass_time
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication import wake
from placet_server.core.publication.lease import child_id, new_lease_id
from placet_server.core.publication.promote import promote
from placet_server.core.recovery.rescue import close_unwanted, rescue
from placet_server.model.action import Action
from placet_server.model.errors import PlacetError
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.store import action as actions
from placet_server.store import wake as wakes
from placet_server.store.clock import FixedClock
from tests.core.kernels import BOB, QUEUE, declare_dead, open_kernel, output, places, put, read, work_off
from tests.core.people import ANNA, APPROVE, DENY, vote
from tests.postgres import Database

LONG = os.environ.get("PLACET_LONG") == "1"
# Two wait for people, one for nobody, one for a parent of its own that waits for people.
STEPS = {"pay": "till.pay", "ship": "till.pay", "note": "till.note", "ask": "till.ask"}
VOTED = ("pay", "ship", "ask/pay")
servers = st.sampled_from([0, 1])
voted = st.sampled_from(VOTED)
verdicts = st.sampled_from([APPROVE, APPROVE, DENY])


class Machine(RuleBasedStateMachine):
    dsn = ""

    @initialize(parked=st.sampled_from([True, True, False]))
    def open(self, parked: bool) -> None:
        self.runner = asyncio.Runner()
        self.clock = FixedClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.stacks = [AsyncExitStack(), AsyncExitStack()]
        self.effects: Counter[str] = Counter()
        self.lost = 0
        self.cancelled = False
        self.runner.run(self._open())
        if parked:
            self.do(work_off(self.kernels[0]))

    async def _open(self) -> None:
        self.kernels = [await self._kernel(number) for number in (0, 1)]
        async with self.kernels[0].journal.pool.connection() as connection:
            key = await connection.fetchval("select count(*) from actions")
        self.parent_id = (await put(self.kernels[0], "till.sell", {}, f"k{key}")).action.action_id
        self.ids = {step: child_id(self.parent_id, step) for step in STEPS}
        self.ids["ask/pay"] = child_id(self.ids["ask"], "pay")

    async def _kernel(self, number: int) -> Kernel:
        app = App("till")

        @app.tool("till.pay", "unsafe", approval="1 of role:finance; ttl=1h")
        async def pay(context: Context) -> None:
            self.effects[context.action_id] += 1

        @app.tool("till.note", "unsafe")
        async def note(context: Context) -> None:
            self.effects[context.action_id] += 1

        @app.tool("till.ask", "composed")
        async def ask(context: Context) -> None:
            await context.call("pay", "till.pay", {})

        @app.tool("till.sell", "composed")
        async def sell(context: Context) -> dict[str, str]:
            async def call(step: str) -> str:
                try:
                    await context.call(step, STEPS[step], {})
                except CallFailed as failed:
                    return failed.outcome.kind
                return "succeeded"

            told = await asyncio.gather(*map(call, STEPS))
            return dict(zip(STEPS, told, strict=True))

        kernel = open_kernel(self.dsn, app, queue=QUEUE, clock=self.clock)
        return await self.stacks[number].enter_async_context(kernel)

    def do(self, doing: Coroutine[Any, Any, Any]) -> None:
        """What is refused changes nothing, and what is left behind the invariants say."""
        self.clock.advance(timedelta(seconds=1))

        async def refused() -> None:
            with suppress(PlacetError):
                await doing

        self.runner.run(refused())

    async def _stored(self, name: str = "") -> Action | None:
        async with self.kernels[0].journal.pool.connection() as connection:
            action_id = self.ids[name] if name else self.parent_id
            return await actions.get(connection, "acme", action_id, full=True)

    @rule(server=servers, blind=st.booleans())
    def run(self, server: int, blind: bool) -> None:
        """`blind`: no look comes through, as if each writer died after its commit."""

        async def doing() -> None:
            async with looks_lost() if blind else AsyncExitStack():
                await work_off(self.kernels[server])

        self.do(doing())

    @rule(name=voted, verdict=verdicts, server=servers, blind=st.booleans())
    def vote(self, name: str, verdict: Any, server: int, blind: bool) -> None:
        async def doing() -> None:
            async with looks_lost() if blind else AsyncExitStack():
                await self._vote(name, verdict, server)

        self.do(doing())

    async def _vote(self, name: str, verdict: Any, server: int) -> None:
        child = await self._stored(name)
        if child is not None and child.approval_id is not None:
            await vote(self.kernels[server], child.approval_id, ANNA, verdict)

    @rule(
        votes=st.dictionaries(voted, verdicts),
        cancels=st.sets(st.sampled_from([*STEPS, "ask/pay"]), max_size=2),
    )
    def all_at_once(self, votes: dict[str, Any], cancels: set[str]) -> None:
        async def doing() -> None:
            one, other = self.kernels
            came = await asyncio.gather(
                work_off(one),
                work_off(other),
                *(self._vote(name, verdict, n % 2) for n, (name, verdict) in enumerate(votes.items())),
                *(cancel_action(one.engine, BOB, self.ids[name], "model") for name in cancels),
                wake.sweep(other.journal),
                return_exceptions=True,
            )
            for fault in came:
                if isinstance(fault, BaseException) and not isinstance(fault, PlacetError):
                    raise fault

        self.do(doing())

    @rule(server=servers)
    def expire(self, server: int) -> None:
        self.clock.advance(timedelta(hours=1))
        self.do(pass_time(self.kernels[server].journal))

    @rule(name=st.sampled_from([*STEPS, "ask/pay"]), server=servers)
    def cancel_a_step(self, name: str, server: int) -> None:
        self.do(cancel_action(self.kernels[server].engine, BOB, self.ids[name], "model"))

    @precondition(lambda self: not self.cancelled)
    @rule(server=servers, dies=st.booleans())
    def cancel(self, server: int, dies: bool) -> None:
        """`dies`: once it is marked."""

        async def mark() -> None:
            async with self.kernels[server].journal.pool.connection() as connection:
                await actions.request_cancel(
                    connection,
                    tenant="acme",
                    action_id=self.parent_id,
                    event_body="{}",
                    now=self.clock.now(),
                )

        engine = self.kernels[server].engine
        self.do(mark() if dies else cancel_action(engine, BOB, self.parent_id, "model"))
        self.cancelled = True

    @rule(name=st.sampled_from(["", *STEPS, "ask/pay"]), server=servers)
    def die_as_it_is_claimed(self, name: str, server: int) -> None:
        async def doing() -> None:
            action, dead = await self._stored(name), self.kernels[server]
            if action is None or action.state is not ActionState.QUEUED:
                return
            async with dead.journal.pool.connection() as connection:
                claimed = await actions.claim(
                    connection,
                    action,
                    lease_id=new_lease_id(),
                    boot_id=dead.boot_id,
                    timeout_seconds=9.0,
                    now=self.clock.now(),
                )
            await declare_dead(dead)
            await self.stacks[server].aclose()
            self.kernels[server] = await self._kernel(server)
            await rescue(self.kernels[server].journal)
            self.lost += claimed is not None and not name

        self.do(doing())

    @rule(server=servers)
    def sweep(self, server: int) -> None:
        self.do(self._sweep(self.kernels[server]))

    async def _sweep(self, kernel: Kernel) -> None:
        """As the loop does, when what was put off is due."""
        self.clock.advance(timedelta(minutes=1))
        await promote(kernel.journal)
        await wake.sweep(kernel.journal)
        await close_unwanted(kernel.journal)

    @invariant()
    def it_waits_for_something_and_ends_once(self) -> None:
        self.runner.run(self._check())

    async def _check(self) -> None:
        parent = await self._stored()
        assert parent is not None
        steps = {name: await self._stored(name) for name in self.ids}
        for name, step in steps.items():
            done = self.effects[self.ids[name]]
            assert done == int(step is not None and step.state is ActionState.SUCCEEDED) or name == "ask"
        for each, children in ((parent, STEPS), (steps["ask"], ["ask/pay"])):
            if each is None:
                continue
            settled, woken = await self._facts(each.action_id)
            assert settled == (each.state in TERMINAL)
            if each.state is ActionState.WAITING:
                below = [steps[name] for name in children]
                assert woken or any(step is not None and step.state not in TERMINAL for step in below)
                ends = [(step.settle_time_us or 0) for step in below if step is not None]
                # What ended since it was parked.
                assert woken or max(ends) <= (each.ready_time_us or 0)
        line = await places(self.kernels[0])
        assert parent.action_id not in line["queue_ready"] or parent.state is ActionState.QUEUED
        assert parent.attempt <= 1 + self.lost
        if parent.state is ActionState.SUCCEEDED:
            known = {name: step.state.value.lower() for name, step in steps.items() if step and name in STEPS}
            assert known == output(parent)

    async def _facts(self, action_id: str) -> tuple[int, int]:
        """How often it has ended, and how many ends its parent has not seen yet."""
        async with self.kernels[0].journal.pool.connection() as connection:
            sql = "select count(*) from events where action_id = $1 and type = 'settled'"
            settled: int = await connection.fetchval(sql, action_id)
            woken: int = await connection.fetchval(
                "select count(*) from wakes where parent_id = $1", action_id
            )
        return settled, woken

    def teardown(self) -> None:
        try:
            self.runner.run(self._finish())
        finally:
            for stack in self.stacks:
                self.runner.run(stack.aclose())
            self.runner.close()

    async def _finish(self) -> None:
        """Whatever it has come to, it ends once people have said what they say, and leaves nothing."""
        one, other = self.kernels
        for _ in range(3):
            for name in VOTED:
                child = await self._stored(name)
                if child is not None and child.state is ActionState.WAITING:
                    await vote(one, child.approval_id or "", ANNA)
            for kernel in (one, other):
                await self._sweep(kernel)
                await work_off(kernel)
        await self._check()
        parent = await read(one, self.parent_id)
        assert parent.state in TERMINAL
        if parent.state is ActionState.CANCELLED:
            stored = [await self._stored(name) for name in self.ids]
            assert all(each is None or each.state in TERMINAL for each in stored)
        self.clock.advance(timedelta(hours=1))
        await wake.drop_left_over(one.journal)
        assert 0 == (await self._facts(self.parent_id))[1]


@asynccontextmanager
async def looks_lost() -> AsyncIterator[None]:
    async def nobody(*_: object) -> list[object]:
        return []

    with mock.patch.object(wakes, "wake", nobody):
        yield


@pytest.mark.timeout(3600)
def test_every_order_of_deeds_ends_it_once(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    Machine.dsn = database.dsn
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=300 if LONG else 8,
            stateful_step_count=30 if LONG else 20,
            deadline=None,
            derandomize=not LONG,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert [] == [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
