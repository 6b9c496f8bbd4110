"""Whatever is done to an approval, in whatever order: it and its action stand as a model of one page says they do."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

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
from placet.failure import Failure
from placet_server.core.decision.expire import pass_time
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action
from placet_server.model.errors import PlacetError
from placet_server.store import action as actions
from placet_server.store.clock import FixedClock
from tests.core.kernels import BOB, QUEUE, declare_dead, open_kernel, places, put, read, work_off
from tests.core.people import ANNA, APPROVE, BEN, CARL, DENY, look, take_back, vote
from tests.core.policies import admit
from tests.postgres import Database

LONG = os.environ.get("PLACET_LONG") == "1"
PERMIT = '@id("all") permit (principal, action, resource);'
POLICIES = {
    "permits": PERMIT,
    "asks": '@id("ask") @approval("1 of role:legal") permit (principal, action, resource);',
    "forbids": PERMIT + '@id("no") forbid (principal, action == Action::"till.pay", resource);',
}
FINANCE, LEGAL = {"anna", "ben"}, {"carl"}
PEOPLE = {"anna": ANNA, "ben": BEN, "carl": CARL}
persons = st.sampled_from(sorted(PEOPLE))


class Machine(RuleBasedStateMachine):
    dsn = ""

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.clock = FixedClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.stack = AsyncExitStack()
        self.paid = 0
        self.fails = False
        # The model.
        self.policy = self.asked_by = "permits"
        self.state, self.approval, self.effects = "WAITING", "PENDING", 0
        self.said: dict[str, str] = {}
        self.do(self._open())

    def do(self, doing: Coroutine[Any, Any, Any]) -> Any:
        """Whether it is allowed is what the model knows by what is there afterwards."""
        try:
            return self.runner.run(doing)
        except PlacetError:
            return None

    async def _kernel(self) -> Kernel:
        app = App("till")

        @app.tool("till.pay", "unsafe", approval="2 of role:finance; ttl=1h")
        async def pay(context: Context) -> None:
            if self.fails:
                raise Failure("declined", "no", effect="not_done")
            self.paid += 1

        return await self.stack.enter_async_context(open_kernel(self.dsn, app, queue=QUEUE, clock=self.clock))

    async def _open(self) -> None:
        self.kernel = await self._kernel()
        await admit(self.kernel, PERMIT)
        async with self.kernel.journal.pool.connection() as connection:
            self.key = await connection.fetchval("select count(*) from actions")
        self.action_id = (await put(self.kernel, "till.pay", {}, f"k{self.key}")).action.action_id

    async def _approval_id(self) -> str:
        return (await read(self.kernel, self.action_id)).approval_id or ""

    @rule(person=persons, verdict=st.sampled_from([APPROVE, APPROVE, DENY]))
    def vote(self, person: str, verdict: Any) -> None:
        async def doing() -> None:
            await vote(self.kernel, await self._approval_id(), PEOPLE[person], verdict)

        self.do(doing())
        may = FINANCE | (LEGAL if self.asked_by == "asks" else set())
        if self.approval != "PENDING" or person not in may or person in self.said:
            return
        self.said[person] = verdict.value
        yes = {each for each, what in self.said.items() if what == "APPROVE"}
        if verdict is DENY:
            self.state, self.approval = "DENIED", "DENIED"
        elif yes >= may:
            self.state, self.approval = "QUEUED", "GRANTED"

    @rule(person=persons)
    def take_back(self, person: str) -> None:
        async def doing() -> None:
            await take_back(self.kernel, await self._approval_id(), PEOPLE[person])

        self.do(doing())
        if self.said.get(person) != "APPROVE" or self.state not in ("WAITING", "QUEUED"):
            return
        self.said[person] = "TAKEN BACK"
        if self.approval == "GRANTED":
            self.state, self.approval = "DENIED", "REVOKED"

    @rule()
    def expire(self) -> None:
        self.clock.advance(timedelta(hours=1))
        self.do(pass_time(self.kernel.journal))
        if self.state in ("WAITING", "QUEUED"):
            self.state, self.approval = "DENIED", "EXPIRED"

    @rule()
    def cancel(self) -> None:
        self.do(cancel_action(self.kernel.engine, BOB, self.action_id, "model"))
        if self.state in ("WAITING", "QUEUED"):
            self.state, self.approval = "CANCELLED", "WITHDRAWN"

    @rule(fails=st.booleans())
    def run(self, fails: bool) -> None:
        self.fails = fails
        self.do(work_off(self.kernel))
        if self.state != "QUEUED":
            return
        if self.policy == "forbids":
            self.state, self.approval = "REFUSED", "WITHDRAWN"
        elif self.policy != self.asked_by:
            self.state, self.approval, self.asked_by, self.said = "WAITING", "PENDING", self.policy, {}
        else:
            self.state = "FAILED" if fails else "SUCCEEDED"
            self.effects += not fails

    @precondition(lambda self: self.state == "QUEUED")
    @rule()
    def die_as_it_is_claimed(self) -> None:
        async def doing() -> None:
            dead, action = self.kernel, await read(self.kernel, self.action_id)
            lease = f"0190a0a0-0000-4000-8000-{self.clock.advance(timedelta(seconds=1)).timestamp():012.0f}"
            async with dead.journal.pool.connection() as connection:
                assert await actions.claim(
                    connection,
                    action,
                    lease_id=lease,
                    boot_id=dead.boot_id,
                    timeout_seconds=9.0,
                    now=self.clock.now(),
                )
            await declare_dead(dead)
            await self.stack.aclose()
            self.kernel = await self._kernel()
            await rescue(self.kernel.journal)

        self.do(doing())

    @rule()
    def redrive(self) -> None:
        async def once(_: Action) -> int:
            return 1

        self.do(redrive(self.kernel.journal, BOB, RedriveCommand(action_ids=(self.action_id,)), once))
        if self.state in ("FAILED", "CANCELLED"):
            self.state, self.approval, self.said = "WAITING", "PENDING", {}

    @rule(policy=st.sampled_from(sorted(POLICIES)))
    def admit(self, policy: str) -> None:
        self.do(admit(self.kernel, POLICIES[policy]))
        self.policy = policy

    @invariant()
    def stands_as_the_model_says(self) -> None:
        async def standing() -> tuple[str, str, int]:
            view = await look(self.kernel, await self._approval_id())
            return view.action.state.value, view.approval.state.value, self.paid

        async def open_and_in_line() -> tuple[int, bool]:
            async with self.kernel.journal.pool.connection() as connection:
                count = await connection.fetchval(
                    "select count(*) from approvals where action_id = $1 and state in ('PENDING', 'GRANTED') "
                    "and consume_time is null",
                    self.action_id,
                )
            line = await places(self.kernel)
            return count, self.action_id in line["queue_ready"] + line["queue_delayed"]

        assert (self.state, self.approval, self.effects) == self.do(standing())
        is_open = self.state in ("WAITING", "QUEUED")
        assert (int(is_open), self.state == "QUEUED") == self.do(open_and_in_line())

    def teardown(self) -> None:
        if self.state in ("WAITING", "QUEUED"):
            self.do(cancel_action(self.kernel.engine, BOB, self.action_id, "over"))
        self.do(self.stack.aclose())
        self.runner.close()


@pytest.mark.timeout(3600)
def test_every_order_of_deeds_ends_as_the_model_says(database: Database) -> None:
    Machine.dsn = database.dsn
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=300 if LONG else 4,
            stateful_step_count=30 if LONG else 20,
            deadline=None,
            derandomize=not LONG,
            suppress_health_check=list(HealthCheck),
        ),
    )
