"""Somebody asks to stop: before, during, after, at the same moment as the end, and from another process."""

import asyncio
import os
import threading

import pytest

from placet.app import App
from placet.context import Context, SyncContext
from placet.failure import Failure
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.ending import StopCause
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import get_action, wait_action
from placet_server.core.publication.watch import watch_action
from placet_server.core.recovery.rescue import rescue
from placet_server.loops.cancel_deliverer import INTERVAL_SECONDS, CancelDeliverer
from placet_server.model.action import Action
from placet_server.model.ending_errors import CancelledByCaller, EffectAmbiguous, HandlerFailed
from placet_server.model.errors import NotFound, Overloaded, PlacetError, WaitExpired
from placet_server.model.event import Event
from placet_server.model.lifecycle import TERMINAL, ActionState
from placet_server.model.outcome import EffectState
from tests.core.kernels import ALICE, EVE, declare_dead, only_action, open_kernel, run, until
from tests.core.workshop import Workshop
from tests.postgres import Database

ROUNDS = int(os.environ.get("PLACET_RACE_ROUNDS", "40"))
BRIEF = ExecutionSettings(cancel_grace_seconds=0.2, reattach_grace_seconds=0.2, handler_threads_max=1)


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


async def begin(kernel: Kernel, shop: Workshop, capability: str, key: str = "k") -> "asyncio.Task[object]":
    call = asyncio.create_task(run(kernel, capability, {}, key))
    await shop.began.wait()
    return call


async def cancel(kernel: Kernel, action: Action) -> Action:
    return await cancel_action(kernel.engine, ALICE, action.action_id, "enough")


@pytest.mark.parametrize(
    ("capability", "error", "effect"),
    [
        ("work.read", CancelledByCaller, None),
        ("work.idempotent", EffectAmbiguous, EffectState.UNKNOWN),
        ("work.unsafe", EffectAmbiguous, EffectState.UNKNOWN),
        ("work.unsafe_marked", EffectAmbiguous, EffectState.UNKNOWN),
    ],
)
async def test_a_cancel_while_running_ends_as_the_effect_class_says(
    database: Database,
    shop: Workshop,
    capability: str,
    error: type[PlacetError],
    effect: EffectState | None,
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, capability)
        told = await cancel(kernel, await only_action(kernel))
        with pytest.raises(error) as raised:
            await call
    assert told.cancel_requested_time_us is not None
    assert raised.value.outcome is not None
    assert (effect, 0) == (raised.value.outcome.effect, shop.effects)


async def test_a_cancel_before_the_mark_did_nothing(database: Database, shop: Workshop) -> None:
    shop.touch = False
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, "work.unsafe_marked")
        await cancel(kernel, await only_action(kernel))
        with pytest.raises(CancelledByCaller) as raised:
            await call
    assert raised.value.outcome is not None
    assert EffectState.NOT_DONE == raised.value.outcome.effect


async def test_a_cancel_before_the_handler_began_never_enters_it(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:

        def stop_first(name: str, capability: str) -> None:
            if name == "intent_persisted":
                for running in kernel.engine.runs:
                    running.stop(StopCause.CANCELLED_BY_CALLER)

        kernel.journal.boundary.hook = stop_first
        with pytest.raises(CancelledByCaller) as raised:
            await run(kernel, "work.unsafe", {}, "k")
    assert raised.value.outcome is not None
    assert ([], EffectState.NOT_DONE) == (shop.attempts, raised.value.outcome.effect)


async def test_a_cancel_after_the_end_changes_nothing(database: Database, shop: Workshop) -> None:
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = (await run(kernel, "work.unsafe", {}, "k")).action
        told = await cancel(kernel, done)
    assert (ActionState.SUCCEEDED, done.sequence, None) == (
        told.state,
        told.sequence,
        told.cancel_requested_time_us,
    )


async def test_a_second_cancel_is_not_a_second_event(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, "work.read")
        action = await only_action(kernel)
        kernel.engine.runs.remove(next(iter(kernel.engine.runs)))
        first, second = await cancel(kernel, action), await cancel(kernel, action)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert (2, 2) == (first.sequence, second.sequence)


async def test_another_tenant_cannot_cancel(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, "work.read")
        action = await only_action(kernel)
        with pytest.raises(NotFound):
            await cancel_action(kernel.engine, EVE, action.action_id, "mine")
        shop.gate.set()
        await call


@pytest.mark.both_servers
@pytest.mark.parametrize("capability", ["work.read", "work.idempotent"])
async def test_cancel_against_completion_on_two_servers_leaves_one_end(
    database: Database, capability: str
) -> None:
    shop = Workshop()
    shop.script = lambda context: asyncio.sleep(0, "done")
    ends: list[ActionState] = []
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as two:
        for number in range(ROUNDS):
            ids: list[str] = []
            call = asyncio.create_task(
                run(one, capability, {}, f"k{number}", time_left_seconds=None, on_admitted=ids.append)
            )
            await until(lambda ids=ids: bool(ids))
            canceller = (one, two)[number % 2]
            if number % 3:
                await asyncio.sleep(0)
            told = await cancel_action(canceller.engine, ALICE, ids[0], "race")
            await asyncio.gather(call, return_exceptions=True)
            await CancelDeliverer(one.engine).step()
            end = await wait_action(one.journal, ALICE, ids[0], 5)
            assert end.state in TERMINAL or end.state is ActionState.AMBIGUOUS
            if told.state in TERMINAL:
                assert told.state is end.state
            events = [e async for e in watch_action(one.journal, ALICE, ids[0], "", until=finished())]
            ended = [e for e in events if isinstance(e, Event) and e.type in ("settled", "ambiguous")]
            assert 1 == len(ended)
            if end.state is ActionState.SUCCEEDED:
                assert '"done"' == end.output_json
            ends.append(end.state)
    assert ActionState.SUCCEEDED in ends


def finished() -> "asyncio.Future[None]":
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


@pytest.mark.parametrize(
    ("touched", "state"), [(True, ActionState.AMBIGUOUS), (False, ActionState.CANCELLED)]
)
async def test_a_cancel_of_a_ready_action_closes_it_truthfully(
    database: Database, shop: Workshop, touched: bool, state: ActionState
) -> None:
    shop.touch = touched
    async with open_kernel(database.dsn, shop.app) as survivor:
        async with open_kernel(database.dsn, shop.app) as lost:
            call = await begin(lost, shop, "work.idempotent_marked")
            await declare_dead(lost)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert 1 == (await rescue(survivor.journal)).requeued
        told = await cancel(survivor, await only_action(survivor))
    assert (state, touched) == (told.state, told.effect_unknown)


async def test_a_lost_action_that_was_cancelled_meanwhile_is_not_made_ready(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as survivor:
        async with open_kernel(database.dsn, shop.app) as lost:
            call = await begin(lost, shop, "work.read")
            await declare_dead(lost)
            await cancel_action(survivor.engine, ALICE, (await only_action(survivor)).action_id, "no")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert 1 == (await rescue(survivor.journal)).closed
        end = await only_action(survivor)
    assert (ActionState.CANCELLED, "CANCELLED_BY_CALLER") == (end.state, end.reason)


async def test_a_handler_that_ignores_cancel_keeps_running_while_its_caller_is_told(
    database: Database, shop: Workshop
) -> None:
    async def stubborn(context: Context) -> str:
        while not shop.gate.is_set():
            try:
                await shop.gate.wait()
            except asyncio.CancelledError:
                continue
        return "done all the same"

    shop.script = stubborn
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        call = await begin(kernel, shop, "work.unsafe")
        await cancel(kernel, await only_action(kernel))
        with pytest.raises(WaitExpired) as raised:
            await asyncio.wait_for(call, 3)
        with pytest.raises(WaitExpired):  # who comes later is not kept waiting either
            await asyncio.wait_for(run(kernel, "work.unsafe", {}, "k"), 3)
        assert raised.value.outcome is not None
        assert EffectState.UNKNOWN == raised.value.outcome.effect
        running = await only_action(kernel)
        assert (ActionState.RUNNING, 1) == (running.state, len(kernel.engine.runs))
        shop.gate.set()
        end = await wait_action(kernel.journal, ALICE, running.action_id, 5)
    assert (ActionState.SUCCEEDED, '"done all the same"') == (end.state, end.output_json)


async def test_a_handler_that_finishes_when_cancelled_has_succeeded(
    database: Database, shop: Workshop
) -> None:
    async def tidy(context: Context) -> str:
        try:
            await shop.gate.wait()
        except asyncio.CancelledError:
            shop.effects += 1
        return "kept"

    shop.script = tidy
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, "work.unsafe")
        await cancel(kernel, await only_action(kernel))
        await call
        end = await only_action(kernel)
    assert (ActionState.SUCCEEDED, EffectState.DONE) == (end.state, end.effect)
    assert end.cancel_requested_time_us is not None


@pytest.mark.parametrize(
    ("capability", "state"),
    [
        ("work.read", ActionState.CANCELLED),
        ("work.idempotent", ActionState.AMBIGUOUS),
        ("work.unsafe", ActionState.AMBIGUOUS),
    ],
)
async def test_an_undeclared_error_after_a_cancel_is_the_cancels(
    database: Database, shop: Workshop, capability: str, state: ActionState
) -> None:
    async def breaks(context: Context) -> None:
        try:
            await shop.gate.wait()
        except asyncio.CancelledError:
            raise ValueError("broken off") from None

    shop.script = breaks
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, capability)
        await cancel(kernel, await only_action(kernel))
        await asyncio.gather(call, return_exceptions=True)
        end = await only_action(kernel)
    assert (state, "CANCELLED_BY_CALLER") == (end.state, end.cause)


@pytest.mark.parametrize("told_by", ["cancel", "lost connection"])
@pytest.mark.parametrize(
    ("effect", "state"), [("unknown", ActionState.AMBIGUOUS), ("not_done", ActionState.CANCELLED)]
)
async def test_a_failure_reported_after_a_cancel_is_not_retried(
    database: Database, shop: Workshop, told_by: str, effect: str, state: ActionState
) -> None:
    async def fails(context: Context) -> None:
        try:
            await shop.gate.wait()
        except asyncio.CancelledError:
            raise Failure("busy", category="temporary", effect=effect) from None  # type: ignore[arg-type]

    shop.script = fails
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        call = await begin(kernel, shop, "work.idempotent")
        if told_by == "cancel":
            await cancel(kernel, await only_action(kernel))
        else:
            call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: not len(kernel.engine.runs))
        end = await only_action(kernel)
    assert ([1], state, False) == (shop.attempts, end.state, end.key_released)


async def test_a_final_failure_reported_after_a_cancel_is_kept(database: Database, shop: Workshop) -> None:
    async def fails(context: Context) -> None:
        try:
            await shop.gate.wait()
        except asyncio.CancelledError:
            raise Failure("declined", effect="not_done") from None

    shop.script = fails
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, "work.unsafe")
        await cancel(kernel, await only_action(kernel))
        with pytest.raises(HandlerFailed):
            await call


async def test_a_handler_that_cancels_itself_has_raised_an_undeclared_error(
    database: Database, shop: Workshop
) -> None:
    async def gives_up(context: Context) -> None:
        raise asyncio.CancelledError

    shop.script = gives_up
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(HandlerFailed) as failed:
            await run(kernel, "work.read", {})
        with pytest.raises(EffectAmbiguous):
            await run(kernel, "work.unsafe", {}, "k")
    assert "undeclared_error" == failed.value.failure_code


async def test_a_blocked_thread_keeps_its_slot_until_it_returns(database: Database) -> None:
    app = App("plain")
    release, entered = threading.Event(), threading.Event()

    @app.tool("plain.block", "unsafe")
    def block(context: SyncContext) -> str:
        entered.set()
        release.wait(20)
        return "late"

    @app.tool("plain.quick", "read")
    def quick() -> str:
        return "quick"

    async with open_kernel(database.dsn, app, settings=BRIEF) as kernel:
        try:
            call = asyncio.create_task(run(kernel, "plain.block", {}, "k"))
            await until(entered.is_set)
            action = await only_action(kernel)
            await cancel(kernel, action)
            with pytest.raises(WaitExpired):
                await asyncio.wait_for(call, 3)
            with pytest.raises(Overloaded):
                await run(kernel, "plain.quick", {})
            assert ActionState.RUNNING is (await only_action(kernel)).state
        finally:
            release.set()
        end = await wait_action(kernel.journal, ALICE, action.action_id, 5)
        await until(lambda: not len(kernel.engine.runs))
        assert '"quick"' == (await run(kernel, "plain.quick", {})).action.output_json
    assert (ActionState.SUCCEEDED, '"late"') == (end.state, end.output_json)


async def test_a_thread_that_looks_is_told_to_stop(database: Database) -> None:
    app = App("plain")
    entered = threading.Event()

    @app.tool("plain.poll", "read")
    def poll(context: SyncContext) -> str:
        entered.set()
        context.wait_cancelled(20)
        context.raise_if_cancelled()
        return "not cancelled"

    async with open_kernel(database.dsn, app) as kernel:
        call = asyncio.create_task(run(kernel, "plain.poll", {}))
        await until(entered.is_set)
        await cancel(kernel, await only_action(kernel))
        with pytest.raises(CancelledByCaller):
            await call


async def test_a_cancelled_step_is_stored_although_its_context_is_dead(
    database: Database, shop: Workshop
) -> None:
    async def uses_its_context(context: Context) -> str:
        try:
            await shop.gate.wait()
        except asyncio.CancelledError:
            assert context.cancelled
            await context.chunk("last words")
            raise
        return ""

    shop.script = uses_its_context
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, "work.read")
        await cancel(kernel, await only_action(kernel))
        with pytest.raises(CancelledByCaller):
            await call
        end = await only_action(kernel)
        events = [e async for e in watch_action(kernel.journal, ALICE, end.action_id, "")]
    assert ActionState.CANCELLED is end.state
    types = [event.type for event in events if isinstance(event, Event)]
    assert ["chunk", "settled"] == types[-2:]


async def test_a_cancel_through_another_process_arrives_within_half_a_second(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as two:
        loop = one.engine.supervisor.start(CancelDeliverer(one.engine).run())
        call = await begin(one, shop, "work.read")
        action = await only_action(two)
        told = await cancel_action(two.engine, ALICE, action.action_id, "from afar")
        with pytest.raises(CancelledByCaller):
            await call
        loop.cancel()
    assert ActionState.RUNNING is told.state
    assert INTERVAL_SECONDS < 0.5


async def test_who_cancelled_and_why_is_an_event(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = await begin(kernel, shop, "work.read")
        action = await only_action(kernel)
        await cancel_action(kernel.engine, ALICE, action.action_id, 'a "reason" \x00 with\nlines')
        await asyncio.gather(call, return_exceptions=True)
        events = [e async for e in watch_action(kernel.journal, ALICE, action.action_id, "")]
        end = await get_action(kernel.journal, ALICE, action.action_id, full=False)
    bodies = [event.body for event in events if isinstance(event, Event) and event.type == "cancel_requested"]
    assert [{"requester": "alice", "reason": 'a "reason" \x00 with\nlines'}] == bodies
    assert ActionState.CANCELLED is end.state
