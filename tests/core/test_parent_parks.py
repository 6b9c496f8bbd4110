"""A parent that waits for people waits as a row: nobody runs it, and it goes on where it stood."""

import asyncio
from typing import Any

import pytest

from placet.context import Context
from placet.failure import CallFailed
from placet_server.core.admission.leave import cancel_unless_wanted
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.publication.waits import with_family_waits
from placet_server.core.publication.watch import watch_action
from placet_server.model.action import OnWait
from placet_server.model.decision_errors import ApprovalRequired
from placet_server.model.errors import WaitExpired
from placet_server.model.event import Event
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, OutcomeKind
from tests.core.kernels import (
    ALICE,
    QUEUE,
    let_children_stand_in_line,
    open_kernel,
    output,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.core.parking import Planned, parked, serving, steps, told
from tests.core.people import DENY, vote
from tests.postgres import Database


async def both(context: Context) -> Any:
    """One step of each kind at once, one of which people have to say yes to."""
    await context.chunk("begun")
    found = await context.call("look", "plan.find", {"order": "1"})
    said = await asyncio.gather(
        context.call("pay", "plan.paid", {"order": "1"}), context.call("note", "plan.quick", {"order": "1"})
    )
    await context.chunk("over")
    return [found, *said]


async def test_a_parent_whose_step_waits_for_people_is_a_row_and_goes_on_after_the_yes(
    database: Database,
) -> None:
    shop = Planned(both)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        waiting = await parked(kernel, parent.action_id)
        assert (None, 1, True, 0) == (
            waiting.lease_id,
            waiting.attempt,
            waiting.effect_begun,
            len(kernel.engine.runs),
        )
        shown = await with_family_waits(kernel.journal, waiting)
        assert ["pay"] == [wait.step_path for wait in shown.waits]
        await vote(kernel, shown.waits[0].approval_id)
        await work_off(kernel)
        ended = await read(kernel, parent.action_id)
        assert (ActionState.SUCCEEDED, EffectState.DONE, 1) == (ended.state, ended.effect, ended.attempt)
        assert ["found 1", "paid 1", "done 1"] == output(ended)
        assert ([1, 1], ["1"], ["1"]) == (shop.starts, shop.paid, shop.done)
        life = ["admitted", "attempt_started", "effect_started", "parked", "requeued", "resumed", "settled"]
        assert life == await told(kernel, parent.action_id)
        ended_steps = await steps(kernel, parent.action_id)
        assert ["look", "note", "pay"] == [step.step_path for step in ended_steps]
        watched = watch_action(kernel.journal, ALICE, parent.action_id, "")
        names = [
            (e.type.value, e.number) if e.number else e.type.value
            async for e in watched
            if isinstance(e, Event)
        ]
        assert ["admitted", "attempt_started", ("chunk", 1)] == [n for n in names if n != "effect_started"][
            :3
        ]
        # The handler began again from its start, and said again what it says there: its numbers go on.
        assert ["parked", "requeued", "resumed", ("chunk", 2), ("chunk", 3), "settled"] == names[-6:]


async def test_who_executes_a_parent_is_told_whose_yes_it_waits_for(database: Database) -> None:
    shop = Planned(both)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel, serving(kernel):
        with pytest.raises(ApprovalRequired) as caught:
            await run(kernel, "plan.run", {}, "k")
        assert caught.value.outcome is not None
        (wait,) = caught.value.outcome.waits
        assert ("pay", caught.value.approval_id) == (wait.step_path, wait.approval_id)
        returned = (await run(kernel, "plan.run", {}, "k", on_wait=OnWait.RETURN)).action
        assert (ActionState.WAITING, [wait]) == (returned.state, list(returned.waits))
        holding = asyncio.ensure_future(run(kernel, "plan.run", {}, "k", on_wait=OnWait.HOLD))
        await vote(kernel, wait.approval_id)
        assert ["found 1", "paid 1", "done 1"] == output((await holding).action)
    assert ([1, 1], ["1"], ["1"]) == (shop.starts, shop.paid, shop.done)


async def test_a_no_is_told_to_the_parent_that_was_parked_as_it_would_be_in_memory(
    database: Database,
) -> None:
    async def careful(context: Context) -> Any:
        try:
            return await context.call("pay", "plan.paid", {"order": "1"})
        except CallFailed as failed:
            return failed.outcome.kind

    shop = Planned(careful)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        shown = await with_family_waits(kernel.journal, await parked(kernel, parent.action_id))
        await vote(kernel, shown.waits[0].approval_id, verdict=DENY)
        await work_off(kernel)
        ended = await read(kernel, parent.action_id)
    assert ("denied", EffectState.NOT_DONE, [], [1, 1]) == (
        output(ended),
        ended.effect,
        shop.paid,
        shop.starts,
    )


async def test_what_the_handler_makes_of_being_parked_is_not_its_result(database: Database) -> None:
    async def swallowing(context: Context) -> Any:
        calls = (context.call(f"pay{n}", "plan.paid", {"order": str(n)}) for n in range(2))
        try:
            return [str(each) for each in await asyncio.gather(*calls, return_exceptions=True)]
        except BaseException:
            return "swallowed"

    shop = Planned(swallowing)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        shown = await with_family_waits(kernel.journal, await parked(kernel, parent.action_id))
        assert 2 == len(shown.waits)
        for starts, wait in enumerate(shown.waits, 2):
            await vote(kernel, wait.approval_id)
            await work_off(kernel)
            assert starts == len(shop.starts)
        assert ["paid 0", "paid 1"] == output(await read(kernel, parent.action_id))
    assert ["0", "1"] == sorted(shop.paid)


async def test_a_parent_that_does_nothing_else_itself_may_not_say_that_it_does(database: Database) -> None:
    refused: list[str] = []

    async def acting(context: Context) -> Any:
        for act in (context.effect, lambda: context.checkpoint("op")):
            try:
                await act()
            except ValueError as error:
                refused.append(str(error))

    async with open_kernel(database.dsn, Planned(acting).app, queue=QUEUE) as kernel:
        ended = (await run(kernel, "plan.run", {}, "k")).action
    assert (2, EffectState.NOT_DONE) == (len(refused), ended.effect)


async def test_a_step_that_takes_long_parks_its_parent_too(database: Database) -> None:
    async def slow(context: Context) -> Any:
        return await context.call("note", "plan.quick", {"order": "1"})

    shop = Planned(slow)
    async with open_kernel(
        database.dsn, shop.app, settings=ExecutionSettings(park_seconds=0.0), queue=QUEUE
    ) as kernel:
        # Nobody serves the line in which its step stands.
        let_children_stand_in_line(kernel)
        with pytest.raises(WaitExpired) as caught:
            await run(kernel, "plan.run", {}, "k", time_left_seconds=0.5)
        assert caught.value.outcome is not None
        assert (OutcomeKind.PENDING, EffectState.NOT_DONE) == (
            caught.value.outcome.kind,
            caught.value.outcome.effect,
        )
        action = await parked(kernel, caught.value.outcome.action_id)
        await work_off(kernel)
        assert "done 1" == output(await read(kernel, action.action_id))


@pytest.mark.parametrize(
    ("says_cancel", "asks_people"), [(False, False), (True, False), (True, True)], ids=str
)
async def test_who_leaves_what_is_parked_ends_it_only_if_he_said_so_and_nobody_is_asked(
    database: Database, says_cancel: bool, asks_people: bool
) -> None:
    async def waits(context: Context) -> Any:
        return await context.call("s", "plan.paid" if asks_people else "plan.quick", {"order": "1"})

    settings = ExecutionSettings(reattach_grace_seconds=0.0, park_seconds=0.0)
    async with open_kernel(database.dsn, Planned(waits).app, settings=settings, queue=QUEUE) as kernel:
        options: dict[str, Any] = {"on_wait": OnWait.HOLD, "ends_with_its_caller": says_cancel}
        ids: list[str] = []
        # Nobody serves the line in which its step stands, if that may begin.
        let_children_stand_in_line(kernel)
        caller = asyncio.ensure_future(run(kernel, "plan.run", {}, "k", on_admitted=ids.append, **options))
        await until(lambda: ids)
        await parked(kernel, ids[0])
        caller.cancel()
        await asyncio.wait([caller])
        if says_cancel:
            await cancel_unless_wanted(kernel, ALICE, ids[0])
        ended = says_cancel and not asks_people
        assert (ActionState.CANCELLED if ended else ActionState.WAITING) is (await read(kernel, ids[0])).state
