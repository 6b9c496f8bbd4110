"""Going on with an action by its id: joined where it runs, run where nobody does, told where it ended; never twice at a
time, whoever else wants it. PLACET_RACE_ROUNDS: how often all of them do."""

import asyncio
import os
import random
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any

import pytest

from placet.context import Context
from placet.failure import Failure
from placet_server.core.admission.resume import resume, resume_stream
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.rescue import rescue
from placet_server.model.action import Action, Submission
from placet_server.model.ending_errors import (
    CancelledByCaller,
    EffectAmbiguous,
    HandlerFailed,
    RetryBudgetExhausted,
)
from placet_server.model.errors import Draining, NotFound, PlacetError, WaitExpired
from placet_server.model.event import Event
from placet_server.model.lifecycle import ActionState
from tests.core.kernels import (
    ALICE,
    BOB,
    EVE,
    QUEUE,
    declare_dead,
    dispatch,
    only_action,
    open_kernel,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "4"))


@pytest.fixture
def shop() -> Workshop:
    return Workshop(retry_delay=0.001)


async def lost(database: Database, shop: Workshop, key: str = "k") -> Action:
    """Submitted, begun by a process that ended in the middle of it, and not rescued yet."""
    shop.began.clear()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as old:
        submitted = await put(old, "work.idempotent", {}, key)
        await dispatch(old)
        await shop.began.wait()
        await declare_dead(old)
    return submitted.action


async def test_whoever_wants_a_lost_action_one_at_a_time_runs_it(database: Database, shop: Workshop) -> None:
    dice = random.Random(11)
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as other,
    ):
        for number in range(ROUNDS):
            shop.gate.clear()
            action = await lost(database, shop, f"k{number}")
            shop.attempts.clear()
            shop.at_once_max, shop.effects = 0, 0
            shop.gate.set()

            async def soon(wanted: Awaitable[Any]) -> Any:
                await asyncio.sleep(dice.random() / 50)
                return await wanted

            async def work_off(kernel: Kernel, action_id: str = action.action_id) -> None:
                while (await read(kernel, action_id)).state is not ActionState.SUCCEEDED:
                    await dispatch(kernel)
                    await asyncio.sleep(0.005)

            async with asyncio.timeout(20):
                told = await asyncio.gather(
                    *(
                        soon(resume(kernel, BOB, action.action_id, 10.0))
                        for kernel in (one, other)
                        for _ in "ab"
                    ),
                    *(soon(run(kernel, "work.idempotent", {}, f"k{number}")) for kernel in (one, other)),
                    *(soon(work_off(kernel)) for kernel in (one, other)),
                    *(soon(rescue(kernel.journal)) for kernel in (one, other)),
                )
            ended = await read(one, action.action_id)
            assert ([2], 1, 1) == (shop.attempts, shop.at_once_max, shop.effects)
            assert {ended.receipt_digest} == {resumed.receipt_digest for resumed in told[:4]}
            assert {ended.action_id} == {executed.action.action_id for executed in told[4:6]}


async def test_what_waits_is_run_in_its_requesters_name_on_its_own_input(
    database: Database, shop: Workshop
) -> None:
    callers = []

    async def note(context: Context) -> str:
        callers.append((context.caller.subject, context.attempt))
        return "done"

    shop.script = note
    async with open_kernel(database.dsn, shop.app) as kernel:
        waits = await put(kernel, "work.unsafe", {"order": "7"}, "k")
        done = await resume(kernel, BOB, waits.action.action_id, 10.0)
        again = await resume(kernel, BOB, waits.action.action_id, 10.0)
        later = await put(kernel, "work.unsafe", {}, "later", place=Submission(delay_seconds=3600.0))
        with pytest.raises(WaitExpired):
            await resume(kernel, ALICE, later.action.action_id, 0.5)
        with pytest.raises(NotFound):
            await resume(kernel, EVE, waits.action.action_id, 10.0)
        kernel.start_draining()
        ready = await put_anyway(kernel)
        with pytest.raises(Draining):
            await resume(kernel, ALICE, ready.action_id, 10.0)
    assert [("alice", 1)] == callers
    assert (ActionState.SUCCEEDED, done.receipt_digest) == (done.state, again.receipt_digest)


async def put_anyway(kernel: Kernel) -> Action:
    """Submitted just before the server began to leave."""
    kernel.is_draining = False
    submitted = await put(kernel, "work.unsafe", {}, "ready")
    kernel.is_draining = True
    return submitted.action


ERRORS = {
    "FAILED": HandlerFailed,
    "CANCELLED": CancelledByCaller,
    "EXHAUSTED": RetryBudgetExhausted,
    "AMBIGUOUS": EffectAmbiguous,
}


@pytest.mark.parametrize("state", ERRORS)
async def test_what_ended_is_told_and_not_run_again(database: Database, state: str) -> None:
    shop = Workshop(attempts_max=1)

    async def fail(_: Context) -> None:
        if state == "AMBIGUOUS":
            raise ConnectionError
        raise Failure(
            "declined", category="temporary" if state == "EXHAUSTED" else "permanent", effect="not_done"
        )

    shop.script = fail
    error: type[PlacetError] = ERRORS[state]
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        if state == "CANCELLED":
            action_id = (await put(kernel, "work.unsafe", {}, "k")).action.action_id
            await cancel_action(kernel.engine, ALICE, action_id, "")
        elif state == "EXHAUSTED":
            action_id = (await put(kernel, "work.idempotent", {}, "k")).action.action_id
            await work_off(kernel)
        else:
            with pytest.raises(PlacetError):
                await run(kernel, "work.unsafe", {}, "k")
            action_id = (await only_action(kernel)).action_id
        begun = len(shop.attempts)
        with pytest.raises(error) as raised:
            await resume(kernel, ALICE, action_id, 0.5 if state == "AMBIGUOUS" else 10.0)
        with pytest.raises(error):
            async with aclosing(resume_stream(kernel, ALICE, action_id, "", 0.5)) as items:
                assert [item async for item in items]
    assert begun == len(shop.attempts)
    assert raised.value.outcome is not None
    assert state == raised.value.outcome.kind


async def test_a_resumed_stream_goes_on_after_its_cursor_to_the_end_of_a_further_attempt(
    database: Database, shop: Workshop
) -> None:
    async def talk(context: Context) -> str:
        for number in range(3):
            await context.chunk(f"{context.attempt}.{number}")
            if context.attempt == 1 and number == 1:
                shop.began.set()
                await shop.gate.wait()
        return "said"

    shop.script = talk
    async with open_kernel(database.dsn, shop.app) as kernel:
        async with open_kernel(database.dsn, shop.app) as old:
            call = asyncio.create_task(run(old, "work.idempotent", {}, "k"))
            await until(lambda: shop.began.is_set() and shop.attempts)
            action_id = (await only_action(old)).action_id
            cursor = ""
            async with aclosing(resume_stream(old, ALICE, action_id, "", 10.0)) as items:
                async for item in items:
                    cursor = item.cursor
                    if isinstance(item, Event) and item.body.get("text") == "1.1":
                        break
            await declare_dead(old)
        await asyncio.gather(call, return_exceptions=True)
        await rescue(kernel.journal)
        told = []
        async with aclosing(resume_stream(kernel, ALICE, action_id, cursor, 10.0)) as items:
            told = [item async for item in items if isinstance(item, Event)]
    names = [item.body.get("text") or item.type.value for item in told]
    assert ["requeued", "attempt_started", "2.0", "2.1", "2.2", "settled"] == names
    assert [1, 2] == shop.attempts
