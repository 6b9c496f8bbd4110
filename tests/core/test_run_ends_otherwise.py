"""A run that puts itself off, spends a bound or finds nobody who could run it: what its row says then, and that nothing
of it is charged twice.
"""

import asyncio

import pytest

from placet.app import App
from placet.failure import Failure
from placet_server.core.admission.dispatch import QueueSettings
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.ending import Ended, Exhausted, Postponed
from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication.outcome import error_of, outcome_of
from placet_server.core.publication.promote import promote
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.model.budget_errors import LoopBudgetSpent, SpendBudgetSpent, TurnBudgetSpent
from placet_server.model.event import Event
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState, OutcomeKind
from placet_server.model.run_errors import AgentUnavailable
from tests.core.kernels import (
    ALICE,
    QUEUE,
    dispatch,
    open_kernel,
    put,
    read,
    run,
    until,
    until_stored,
    work_off,
)
from tests.core.parking import steps, told
from tests.core.scripted import ASKED, Scripted, entries
from tests.postgres import Database


def provider_that(*turns: object) -> tuple[Scripted, list[object]]:
    """A model each of whose turns is told by the first of these that is left: an ending, a failure, or an answer."""
    left = list(turns)

    async def provide(stretch: Stretch, turn: int) -> None:
        now = left.pop(0) if left else None
        if isinstance(now, BaseException):
            raise now

    return Scripted(["plan.find"], provider=provide), left


async def test_a_run_that_puts_itself_off_goes_on_with_the_same_attempt(database: Database) -> None:
    postponed = Ended(Postponed(delay_seconds=0.02, message="the model is busy"))
    script, _ = provider_that(None, postponed, postponed)
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        waiting = await read(kernel, asked.action_id)
        assert (ActionState.QUEUED, "POSTPONED", 1, "the model is busy") == (
            waiting.state,
            waiting.cause,
            waiting.attempt,
            waiting.message,
        )

        async def has_ended() -> bool:
            await promote(kernel.journal)
            await work_off(kernel)
            return (await read(kernel, asked.action_id)).state is ActionState.SUCCEEDED

        await until_stored(has_ended)
        ended = await read(kernel, asked.action_id)
        assert [1, 2, 2, 2] == script.requests
        assert (1, 3, "") == (ended.attempt, script.starts, ended.message)
        asked_for = [
            turn for _, type_, turn, _ in await entries(kernel, asked.action_id) if type_ == "requested"
        ]
        assert [1, 2, 2, 2] == asked_for
        assert 1 == len(await steps(kernel, asked.action_id))
        names = await told(kernel, asked.action_id)
        assert ["requeued", "resumed", "turn_requested"] * 2 == names[-8:-2]
        watched = watch_action(kernel.journal, ALICE, asked.action_id, "")
        assert names == [event.type.value async for event in watched if isinstance(event, Event)]


async def test_who_waits_for_a_run_that_puts_itself_off_goes_on_with_it(database: Database) -> None:
    script, _ = provider_that(Ended(Postponed(delay_seconds=0.02)))
    script.turns = ()
    async with open_kernel(database.dsn, script.app, programs=script) as kernel:
        ended = (await run(kernel, "plan.agent", ASKED, "k")).action
        assert ([1, 1], 1) == (script.requests, ended.attempt)
        assert "resumed" in await told(kernel, ended.action_id)


async def test_a_run_that_has_put_itself_off_is_cancelled_at_once(database: Database) -> None:
    script, _ = provider_that(Ended(Postponed(delay_seconds=3600.0)))
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        ended = await cancel_action(kernel.engine, ALICE, asked.action_id, "enough")
        assert (ActionState.CANCELLED, EffectState.NOT_DONE) == (ended.state, ended.effect)
        assert [1] == script.requests


async def test_a_run_that_is_cancelled_while_it_puts_itself_off_is_cancelled(database: Database) -> None:
    asks, gate = asyncio.Event(), asyncio.Event()

    async def provide(stretch: Stretch, turn: int) -> None:
        asks.set()
        try:
            await gate.wait()
        finally:
            raise Ended(Postponed(delay_seconds=1.0))

    script = Scripted(provider=provide)
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await dispatch(kernel)
        await asyncio.wait_for(asks.wait(), 10)
        await cancel_action(kernel.engine, ALICE, asked.action_id, "enough")
        await until(lambda: not len(kernel.engine.runs))
        assert ActionState.CANCELLED == (await read(kernel, asked.action_id)).state


@pytest.mark.parametrize(
    ("reason", "cause", "error", "metadata"),
    [
        ("TURN_BUDGET", "turns=2", TurnBudgetSpent, {"turns": "2"}),
        ("LOOP_BUDGET", "equal_calls=3", LoopBudgetSpent, {"budget": "equal_calls", "budget_max": "3"}),
        ("SPEND_BUDGET", "tokens=100", SpendBudgetSpent, {"budget": "tokens", "budget_max": "100"}),
    ],
)
async def test_a_run_whose_bound_is_spent_is_exhausted_by_name_and_never_redriven(
    database: Database, reason: str, cause: str, error: type, metadata: dict[str, str]
) -> None:
    script, _ = provider_that(None, Ended(Exhausted(reason=reason, cause=cause, message="no more")))
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        ended = await read(kernel, asked.action_id)
        outcome, met = outcome_of(ended), error_of(ended)
        assert (OutcomeKind.EXHAUSTED, reason, EffectState.NOT_DONE, "no more") == (
            outcome.kind,
            outcome.reason,
            outcome.effect,
            outcome.message,
        )
        assert (error, metadata) == (type(met), met.metadata() if met else None)
        command = RedriveCommand(action_ids=(asked.action_id,))
        (refused,) = await redrive(kernel.journal, ALICE, command, three_more)
        assert (False, "budget_spent") == (refused.changed, refused.refused_rule)


async def three_more(_: object) -> int:
    return 3


async def test_a_redriven_run_asks_for_the_turn_that_failed_and_for_nothing_before(
    database: Database,
) -> None:
    script, _ = provider_that(None, Failure("model_refused", "no", category="permanent", effect="not_done"))
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        failed = await read(kernel, asked.action_id)
        assert (ActionState.FAILED, "model_refused") == (failed.state, failed.failure_code)
        command = RedriveCommand(action_ids=(asked.action_id,))
        (again,) = await redrive(kernel.journal, ALICE, command, three_more)
        assert again.changed
        await work_off(kernel)
        assert [1, 2, 2] == script.requests
        assert ActionState.SUCCEEDED == (await read(kernel, asked.action_id)).state
        assert 1 == len(await steps(kernel, asked.action_id))


async def test_an_agent_is_refused_where_no_run_of_it_can_begin(database: Database) -> None:
    script = Scripted()
    async with open_kernel(database.dsn, script.app, queue=QUEUE) as kernel:
        with pytest.raises(AgentUnavailable) as without:
            await put(kernel, "plan.agent", ASKED, "k")
    script.trouble = "model_unknown"
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        with pytest.raises(AgentUnavailable) as unfit:
            await run(kernel, "plan.agent", ASKED, "k")
    assert ("extra_missing", "model_unknown") == (without.value.problem, unfit.value.problem)


async def test_a_line_of_runs_waits_for_who_can_run_them(database: Database) -> None:
    script = Scripted()
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = [(await put(kernel, "plan.agent", ASKED, f"k{n}")).action for n in range(2)]
        async with open_kernel(database.dsn, script.app, queue=QUEUE) as unable:
            await work_off(unable)
            assert "QUEUED" == (await read(kernel, asked[0].action_id)).state
        script.trouble = "model_unknown"
        await work_off(kernel)
        assert (0, "QUEUED") == (script.starts, (await read(kernel, asked[0].action_id)).state)
        script.trouble = ""
        # It was passed over for a while.
        kernel.dispatcher._lines._unroutable.clear()  # type: ignore[union-attr]
        await work_off(kernel)
        assert ["SUCCEEDED"] * 2 == [(await read(kernel, each.action_id)).state for each in asked]


async def test_lines_of_others_take_no_share_of_who_can_run_agents(database: Database) -> None:
    script, others = Scripted(), App("others")
    for number in range(8):
        others.tool(f"others.tool{number}", "read")(nothing)
    queue = QueueSettings(poll_seconds=3600.0, slots_max=1)
    async with (
        open_kernel(database.dsn, others) as theirs,
        open_kernel(database.dsn, script.app, queue=queue, programs=script) as kernel,
    ):
        for number in range(8):
            await put(theirs, f"others.tool{number}", {}, f"k{number}")
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        assert kernel.dispatcher is not None
        await kernel.dispatcher.run_once()
        assert "RUNNING" == (await read(kernel, asked.action_id)).state


async def nothing() -> None:
    pass


async def test_who_waits_for_a_model_holds_no_slot(database: Database) -> None:
    """But for who is one too many of them."""
    gate = asyncio.Event()

    async def provide(stretch: Stretch, turn: int) -> None:
        await gate.wait()

    script = Scripted(["plan.find"], provider=provide)
    queue = QueueSettings(poll_seconds=0.0, slots_max=1, agent_runs_max=2)
    async with open_kernel(database.dsn, script.app, queue=queue, programs=script) as kernel:
        assert kernel.dispatcher is not None
        asked = [(await put(kernel, "plan.agent", ASKED, f"k{n}")).action for n in range(4)]

        async def are_asked() -> bool:
            await dispatch(kernel)
            return len(script.requests) == 3

        await until_stored(are_asked)
        await dispatch(kernel)
        slots = kernel.dispatcher._slots
        assert (3, 1, 2, 0, False) == (
            len(kernel.engine.runs),
            slots.running,
            slots.asking,
            slots.lent,
            slots.children_only,
        )
        gate.set()
        await work_off(kernel)
        assert (0, 0, 0) == (slots.running, slots.asking, slots.lent)
        assert ["SUCCEEDED"] * 4 == [(await read(kernel, each.action_id)).state for each in asked]
