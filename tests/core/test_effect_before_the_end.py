"""What is COMPOSED says before its end that nothing is done, as long as none of its steps can have done anything."""

import asyncio
from contextlib import suppress

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import CallFailed
from placet_server.core.kernel import Kernel
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.publication.read import as_told, get_action, list_actions, wait_action
from placet_server.model.action import OnWait
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.query import ActionQuery
from tests.core.kernels import ALICE, QUEUE, open_kernel, put, run, work_off
from tests.core.parking import parked, serving
from tests.core.people import DENY, vote
from tests.postgres import Database

E = EffectState


class Kin:
    """`kin.top` makes these calls at once; `kin.nest` asks people within a step; `kin.hold` works until `free`."""

    def __init__(self) -> None:
        self.app = App("kin")
        self.entered = asyncio.Event()
        self.marked = asyncio.Event()
        self.mark = asyncio.Event()
        self.free = asyncio.Event()

        @self.app.tool("kin.find", "read")
        async def find() -> None: ...

        @self.app.tool("kin.asked", "unsafe", approval="1 of role:finance")
        async def asked() -> None: ...

        @self.app.tool("kin.pay", "unsafe")
        async def pay() -> None: ...

        @self.app.tool("kin.lose", "unsafe")
        async def lose() -> None:
            raise RuntimeError("nobody knows")

        @self.app.tool("kin.hold", "unsafe", effect_marked=True)
        async def hold(context: Context) -> None:
            self.entered.set()
            await self.mark.wait()
            await context.effect()
            self.marked.set()
            await self.free.wait()

        @self.app.tool("kin.nest", "composed")
        async def nest(context: Context, calls: list[str]) -> None:
            await _call_all(context, calls)

        @self.app.tool("kin.top", "composed")
        async def top(context: Context, calls: list[str], within: list[str]) -> None:
            nested = [context.call("nest", "kin.nest", {"calls": [*within]})] if within else []
            await asyncio.gather(_call_all(context, calls), *nested)


async def _call_all(context: Context, calls: list[str]) -> None:
    async def one(number: int, name: str) -> None:
        with suppress(CallFailed):
            await context.call(f"s{number}", f"kin.{name}", {})

    await asyncio.gather(*[one(number, name) for number, name in enumerate(calls)])


async def effects(kernel: Kernel, action_id: str) -> set[EffectState | None]:
    """As everybody is told that asks about it."""
    journal = kernel.journal
    got = await as_told(journal, await get_action(journal, ALICE, action_id, full=False))
    waited = await wait_action(journal, ALICE, action_id, 0.0)
    listed = (await list_actions(journal, ALICE, ActionQuery(action_id_prefix=action_id))).actions
    return {outcome_of(each).effect for each in (got, waited, *listed)}


@pytest.mark.parametrize(
    ("calls", "within", "effect"),
    [
        (["asked"], [], E.NOT_DONE),
        (["asked", "find"], [], E.NOT_DONE),
        (["asked", "asked"], ["asked"], E.NOT_DONE),
        (["find"], ["asked"], E.NOT_DONE),
        (["asked", "pay"], [], E.UNKNOWN),
        (["asked", "lose"], [], E.UNKNOWN),
        (["asked"], ["asked", "pay"], E.UNKNOWN),
        ([], ["asked", "lose"], E.UNKNOWN),
    ],
    ids=str,
)
async def test_what_waits_has_done_nothing_only_if_no_step_can_have(
    database: Database, calls: list[str], within: list[str], effect: EffectState
) -> None:
    asked = {"calls": calls, "within": within}
    async with open_kernel(database.dsn, Kin().app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "kin.top", asked, "k")).action
        await work_off(kernel)
        await parked(kernel, parent.action_id)
        assert {effect} == await effects(kernel, parent.action_id)
        again = (await put(kernel, "kin.top", asked, "k")).action
        returned = (await run(kernel, "kin.top", asked, "k", on_wait=OnWait.RETURN)).action
        assert {effect} == {outcome_of(each).effect for each in (again, returned)}


async def test_it_is_not_known_from_the_moment_at_which_a_step_may_do_something(database: Database) -> None:
    kin = Kin()
    async with open_kernel(database.dsn, kin.app, queue=QUEUE) as kernel, serving(kernel):
        parent = (await put(kernel, "kin.top", {"calls": ["hold"], "within": []}, "k")).action
        await kin.entered.wait()
        assert {E.NOT_DONE} == await effects(kernel, parent.action_id)
        kin.mark.set()
        await kin.marked.wait()
        assert {E.UNKNOWN} == await effects(kernel, parent.action_id)
        kin.free.set()
        ended = await wait_action(kernel.journal, ALICE, parent.action_id, 10.0)
        assert (ActionState.SUCCEEDED, E.DONE) == (ended.state, outcome_of(ended).effect)


async def test_a_parent_that_is_woken_by_a_no_has_done_nothing_either(database: Database) -> None:
    """Until it goes on it stands in line, as a run does that its provider has put off."""
    async with open_kernel(database.dsn, Kin().app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "kin.top", {"calls": ["asked"], "within": []}, "k")).action
        await work_off(kernel)
        waiting = await as_told(kernel.journal, await parked(kernel, parent.action_id))
        await vote(kernel, waiting.waits[0].approval_id, verdict=DENY)
        woken = await get_action(kernel.journal, ALICE, parent.action_id, full=False)
        assert ActionState.QUEUED is woken.state
        assert {E.NOT_DONE} == await effects(kernel, parent.action_id)
