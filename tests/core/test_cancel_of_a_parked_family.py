"""Whoever cancels what is parked ends it and all that it has called; of a step alone its parent is told."""

from typing import Any

import pytest

from placet.context import Context
from placet.failure import CallFailed
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.cancel_many import cancel_many
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.recovery.rescue import close_unwanted
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, RetryAdvice
from placet_server.model.query import ActionQuery
from placet_server.store import action as actions
from tests.core.kernels import ALICE, QUEUE, open_kernel, output, put, read, work_off
from tests.core.parking import Planned, parked, steps, told
from tests.postgres import Database

S = ActionState


async def pays(context: Context) -> Any:
    await context.call("note", "plan.quick", {"order": "1"})
    try:
        return await context.call("pay", "plan.paid", {"order": "1"})
    except CallFailed as failed:
        return failed.outcome.kind


@pytest.mark.parametrize("many", [False, True], ids=["one", "all that match"])
async def test_what_is_parked_ends_with_its_steps_and_says_what_was_done(
    database: Database, many: bool
) -> None:
    shop = Planned(pays)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        await parked(kernel, parent.action_id)
        if many:
            query = ActionQuery(capabilities=("plan.run",))
            assert 1 == (await cancel_many(kernel.engine, ALICE, query, "", validate_only=False)).ended
        else:
            await cancel_action(kernel.engine, ALICE, parent.action_id, "")
        ended = await read(kernel, parent.action_id)
        assert (S.CANCELLED, EffectState.DONE) == (ended.state, ended.effect)
        assert [S.SUCCEEDED, S.CANCELLED] == [step.state for step in await steps(kernel, parent.action_id)]
        await work_off(kernel)
        assert ([1], [], ["1"]) == (shop.starts, shop.paid, shop.done)
        assert (await told(kernel, parent.action_id))[-2:] == ["cancel_requested", "settled"]


@pytest.mark.parametrize("is_noted", [False, True], ids=["nothing done", "something done"])
async def test_a_family_of_several_levels_says_what_its_lowest_have_come_to(
    database: Database, is_noted: bool
) -> None:
    """Once it is over no key does it a second time, if something of it was done."""

    async def goes_down(context: Context) -> Any:
        depth = len(levels)
        if context.attempt == 1 and context.action_id not in levels:
            levels.append(context.action_id)
        if levels.index(context.action_id) < 3:
            return await context.call("down", "plan.run", {})
        if is_noted:
            await context.call("note", "plan.quick", {"order": "1"})
        return await context.call("pay", "plan.paid", {"order": str(depth)})

    levels: list[str] = []
    shop = Planned(goes_down)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        for action_id in levels:
            await parked(kernel, action_id)
        assert 4 == len(levels)
        await cancel_action(kernel.engine, ALICE, parent.action_id, "")
        effect = EffectState.DONE if is_noted else EffectState.NOT_DONE
        ended = [await read(kernel, action_id) for action_id in levels]
        assert [(S.CANCELLED, effect)] * 4 == [(each.state, each.effect) for each in ended]
        advice = RetryAdvice.NEVER if is_noted else RetryAdvice.NEW_KEY
        assert advice is outcome_of(ended[0]).retry_advice


async def test_a_cancel_that_comes_as_it_is_about_to_park_is_not_lost(database: Database) -> None:
    """The mark is there, and whoever made it has died before it did anything else."""
    shop = Planned(pays)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        write = kernel.journal.writer.advance

        def cancel_first(advance: Any) -> Any:
            if "awaited" not in advance:
                return write(advance)

            async def marked() -> Any:
                async with kernel.journal.pool.connection() as connection:
                    await actions.request_cancel(
                        connection, tenant="acme", action_id=parent.action_id, event_body="{}", now=None
                    )
                return await write(advance)

            return kernel.engine.supervisor.start(marked())

        kernel.journal.writer.advance = cancel_first  # type: ignore[method-assign]
        await work_off(kernel)
        ended = await read(kernel, parent.action_id)
        assert (S.CANCELLED, EffectState.DONE) == (ended.state, ended.effect)
        assert [S.SUCCEEDED, S.CANCELLED] == [step.state for step in await steps(kernel, parent.action_id)]


async def test_a_step_that_is_cancelled_alone_is_told_and_the_parent_goes_on(database: Database) -> None:
    shop = Planned(pays)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        await parked(kernel, parent.action_id)
        pay = (await steps(kernel, parent.action_id))[1]
        await cancel_action(kernel.engine, ALICE, pay.action_id, "")
        await work_off(kernel)
        ended = await read(kernel, parent.action_id)
        assert (S.SUCCEEDED, "cancelled", [1, 1]) == (ended.state, output(ended), shop.starts)
        assert 0 == await close_unwanted(kernel.journal)
