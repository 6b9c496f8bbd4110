"""What was given up goes on where it stood by an operator's will: what its steps have done is found, what they failed
is tried again.
"""

from typing import Any

from placet.context import Context
from placet.failure import Failure
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.publication.waits import with_family_waits
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from tests.core.kernels import ALICE, QUEUE, open_kernel, output, put, read, work_off
from tests.core.parking import Planned, again, parked, steps
from tests.core.people import vote
from tests.postgres import Database

S = ActionState


async def test_it_goes_on_after_its_failure_with_what_its_steps_have_done(database: Database) -> None:
    mended = False

    async def pays(context: Context) -> Any:
        noted = await context.call("note", "plan.quick", {"order": "1"})
        paid = await context.call("pay", "plan.paid", {"order": "1"})
        if not mended:
            raise Failure("broken", effect="not_done")
        return [noted, paid]

    shop = Planned(pays)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        waiting = await with_family_waits(kernel.journal, await parked(kernel, parent.action_id))
        assert "not_terminal" == await again(kernel, parent.action_id)
        await vote(kernel, waiting.waits[0].approval_id)
        await work_off(kernel)
        failed = await read(kernel, parent.action_id)
        assert (S.FAILED, EffectState.DONE) == (failed.state, failed.effect)
        mended = True
        assert "" == await again(kernel, parent.action_id)
        assert (await read(kernel, parent.action_id)).effect_begun
        await work_off(kernel)
        ended = await read(kernel, parent.action_id)
        assert (S.SUCCEEDED, ["done 1", "paid 1"], 2) == (ended.state, output(ended), ended.attempt)
    assert (["1"], ["1"]) == (shop.done, shop.paid)


async def test_a_step_that_was_cancelled_with_it_is_asked_about_anew(database: Database) -> None:
    async def pays(context: Context) -> Any:
        await context.call("note", "plan.quick", {"order": "1"})
        return await context.call("pay", "plan.paid", {"order": "1"})

    shop = Planned(pays)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        parent = (await put(kernel, "plan.run", {}, "k")).action
        await work_off(kernel)
        await parked(kernel, parent.action_id)
        await cancel_action(kernel.engine, ALICE, parent.action_id, "")
        assert "" == await again(kernel, parent.action_id)
        await work_off(kernel)
        waiting = await with_family_waits(kernel.journal, await parked(kernel, parent.action_id))
        (wait,) = waiting.waits
        assert "pay#2" == wait.step_path
        await vote(kernel, wait.approval_id)
        await work_off(kernel)
        assert S.SUCCEEDED is (await read(kernel, parent.action_id)).state
        assert [S.SUCCEEDED, S.CANCELLED, S.SUCCEEDED] == [
            step.state for step in await steps(kernel, parent.action_id)
        ]
    assert (["1"], ["1"]) == (shop.done, shop.paid)
