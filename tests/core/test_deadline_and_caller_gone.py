"""The four clocks, and callers who leave: what is stopped, what goes on, and that the answer comes in time."""

import asyncio
from datetime import timedelta

import pytest

from placet.context import Context
from placet.failure import Failure
from placet_server.core.admission.contract import clocks_for, wait_seconds_for
from placet_server.core.admission.execute import execute, execute_stream
from placet_server.core.execution.engine import ExecutionSettings
from placet_server.core.execution.watched import watch_attached
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import wait_action
from placet_server.core.publication.watch import watch_action
from placet_server.model.action import Invocation, OnCallerGone
from placet_server.model.ending_errors import DeadlineExceeded, EffectAmbiguous, RetryBudgetExhausted
from placet_server.model.errors import PlacetError, WaitExpired
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.rpc.convert.capability import manifest_of
from tests.core.kernels import ALICE, EVE, call_of, only_action, open_kernel, run, states, until
from tests.core.workshop import Workshop
from tests.postgres import Database

BRIEF = ExecutionSettings(cancel_grace_seconds=0.2, reattach_grace_seconds=0.3)


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


@pytest.mark.parametrize("seconds", [2.2])
@pytest.mark.parametrize(
    ("capability", "error"),
    [
        ("work.read", DeadlineExceeded),
        ("work.idempotent", EffectAmbiguous),
        ("work.unsafe", EffectAmbiguous),
    ],
)
async def test_the_deadline_stops_the_work_and_the_typed_answer_comes_before_it(
    database: Database, shop: Workshop, capability: str, error: type[PlacetError], seconds: float
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        await kernel.catalog.resolve("acme", capability)
        with pytest.raises(error) as raised:
            await run(kernel, capability, {}, "k", time_left_seconds=seconds)
        end = await only_action(kernel)
    # What the work may take leaves time for the answer.
    assert end.start_time_us is not None
    assert end.deadline_us is not None
    assert 0 < (end.deadline_us - end.start_time_us) / 1_000_000 < seconds
    assert raised.value.outcome is not None
    assert ("DEADLINE_EXCEEDED", [1]) == (end.cause, shop.attempts)


@pytest.mark.parametrize(("seconds", "margin"), [(0.02, 0.010), (0.9, 0.090), (2.2, 0.220), (3600.0, 0.250)])
@pytest.mark.parametrize("gone", list(OnCallerGone))
def test_work_and_wait_end_before_the_caller_s_deadline(
    shop: Workshop, seconds: float, margin: float, gone: OnCallerGone
) -> None:
    (capability,) = (c for c in manifest_of(shop.app.manifest()).capabilities if c.name == "work.unsafe")
    invocation = Invocation(
        capability="work.unsafe", version="", input_json="{}", timeout_seconds=60.0, on_caller_gone=gone
    )
    clocks = clocks_for(capability, invocation, seconds)
    assert clocks.wait_seconds == pytest.approx(seconds - margin / 4)
    assert clocks.wait_seconds == wait_seconds_for(seconds)
    is_cut = gone is OnCallerGone.CANCEL and seconds < 60
    assert clocks.attempt_seconds == pytest.approx(seconds - margin if is_cut else 60.0)
    with pytest.raises(DeadlineExceeded):
        clocks_for(capability, invocation, 0.010)


@pytest.mark.parametrize("seconds", [2.2])
async def test_the_typed_answer_comes_in_time_though_the_handler_does_not_stop(
    database: Database, shop: Workshop, seconds: float
) -> None:
    async def ignores(context: Context) -> str:
        while not shop.gate.is_set():
            try:
                await shop.gate.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    shop.script = ignores
    async with open_kernel(database.dsn, shop.app) as kernel:
        await kernel.catalog.resolve("acme", "work.unsafe")
        with pytest.raises(WaitExpired):
            await run(kernel, "work.unsafe", {}, "k", time_left_seconds=seconds)
        assert ["RUNNING"] == await states(kernel)
        shop.gate.set()
        await until(lambda: not len(kernel.engine.runs))


async def test_attempts_never_overlap_after_a_timeout(database: Database) -> None:
    shop = Workshop(timeout=timedelta(seconds=0.2))

    async def slow_to_stop(context: Context) -> str:
        if context.attempt == 3:
            return "third"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            raise
        return ""

    shop.script = slow_to_stop
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.idempotent", {}, "k")
    assert ([1, 2, 3], 1) == (shop.attempts, shop.at_once_max)
    assert (3, '"third"') == (done.action.attempt, done.action.output_json)


async def test_timeouts_of_every_attempt_end_ambiguous_never_cancelled(database: Database) -> None:
    shop = Workshop(timeout=timedelta(seconds=0.1), attempts_max=2)
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(EffectAmbiguous):
            await run(kernel, "work.idempotent", {}, "k")
        end = await only_action(kernel)
    assert ([1, 2], "TIMEOUT") == (shop.attempts, end.cause)


async def test_a_read_that_times_out_is_over(database: Database) -> None:
    shop = Workshop(timeout=timedelta(seconds=0.1))
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(DeadlineExceeded):
            await run(kernel, "work.read", {})
    assert [1] == shop.attempts


async def test_a_later_attempt_has_only_what_the_deadline_still_leaves(
    database: Database, shop: Workshop
) -> None:
    left: list[float] = []

    async def fails_first(context: Context) -> None:
        left.append(context.time_left())
        if context.attempt == 1:
            raise Failure("busy", category="temporary", retry_delay=0.4)
        await asyncio.Event().wait()

    shop.script = fails_first
    async with open_kernel(database.dsn, shop.app) as kernel:
        await kernel.catalog.resolve("acme", "work.idempotent")
        with pytest.raises(EffectAmbiguous):
            await run(kernel, "work.idempotent", {}, "k", time_left_seconds=1.5)
    assert [True, True] == [0.9 < left[0] < 1.5, left[1] < left[0] - 0.35]


async def test_detached_work_goes_on_after_the_deadline(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(WaitExpired) as raised:
            await run(
                kernel, "work.unsafe", {}, "k", time_left_seconds=0.3, on_caller_gone=OnCallerGone.DETACH
            )
        shop.gate.set()
        assert raised.value.outcome is not None
        end = await wait_action(kernel.journal, ALICE, raised.value.outcome.action_id, 5)
    assert (ActionState.SUCCEEDED, 1) == (end.state, shop.effects)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.005])
async def test_a_deadline_that_leaves_no_time_writes_nothing(
    database: Database, shop: Workshop, seconds: float
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        with pytest.raises(DeadlineExceeded):
            await run(kernel, "work.read", {}, time_left_seconds=seconds)
        assert [] == await states(kernel)


async def lose_caller(
    kernel: Kernel, shop: Workshop, capability: str, key: str = "k", **options: OnCallerGone
) -> str:
    """A call whose connection breaks while its handler runs."""
    call = asyncio.create_task(
        run(
            kernel,
            capability,
            {},
            key,
            time_left_seconds=None,
            on_caller_gone=options.get("gone", OnCallerGone.CANCEL),
        )
    )
    await shop.began.wait()
    action_id = (await only_action(kernel)).action_id
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    return action_id


async def test_a_lost_connection_cancels_a_read_at_once(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:  # its grace is ten seconds
        action_id = await lose_caller(kernel, shop, "work.read")
        end = await wait_action(kernel.journal, ALICE, action_id, 5)
    assert (ActionState.CANCELLED, "CANCELLED_BY_CALLER") == (end.state, end.reason)


async def test_a_lost_connection_cancels_anything_else_after_the_grace(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        action_id = await lose_caller(kernel, shop, "work.unsafe")
        assert ActionState.RUNNING is (await only_action(kernel)).state
        end = await wait_action(kernel.journal, ALICE, action_id, 5)
    assert (ActionState.AMBIGUOUS, "CANCELLED_BY_CALLER") == (end.state, end.cause)


async def test_a_lost_connection_leaves_detached_work_alone(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        action_id = await lose_caller(kernel, shop, "work.read", gone=OnCallerGone.DETACH)
        await asyncio.sleep(2 * BRIEF.reattach_grace_seconds)
        shop.gate.set()
        end = await wait_action(kernel.journal, ALICE, action_id, 5)
    assert ActionState.SUCCEEDED is end.state


async def test_the_same_key_attaches_again_within_the_grace(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        await lose_caller(kernel, shop, "work.unsafe")
        again = asyncio.create_task(run(kernel, "work.unsafe", {}, "k"))
        await asyncio.sleep(2 * BRIEF.reattach_grace_seconds)
        shop.gate.set()
        done = await again
    assert (True, EffectState.DONE, 1) == (done.attached, done.action.effect, shop.effects)


async def test_a_watcher_within_the_grace_keeps_the_work_and_losing_him_cancels_nothing(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        action_id = await lose_caller(kernel, shop, "work.unsafe")
        watcher = watch_attached(kernel.engine, ALICE, action_id, "")
        await anext(watcher)
        await asyncio.sleep(2 * BRIEF.reattach_grace_seconds)
        await watcher.aclose()
        await asyncio.sleep(2 * BRIEF.reattach_grace_seconds)
        assert ActionState.RUNNING is (await only_action(kernel)).state
        shop.gate.set()
        end = await wait_action(kernel.journal, ALICE, action_id, 5)
    assert ActionState.SUCCEEDED is end.state


async def test_a_watcher_of_another_tenant_keeps_nothing(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        action_id = await lose_caller(kernel, shop, "work.unsafe")
        with pytest.raises(PlacetError):
            await anext(watch_attached(kernel.engine, EVE, action_id, ""))
        end = await wait_action(kernel.journal, ALICE, action_id, 5)
    assert ActionState.AMBIGUOUS is end.state


async def test_losing_a_mere_watcher_cancels_nothing(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        call = asyncio.create_task(run(kernel, "work.read", {}))
        await shop.began.wait()
        watcher = watch_action(kernel.journal, ALICE, (await only_action(kernel)).action_id, "")
        await anext(watcher)
        await watcher.aclose()
        shop.gate.set()
        done = await call
    assert ActionState.SUCCEEDED is done.action.state


async def test_one_of_two_callers_leaving_cancels_nothing(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        first = asyncio.create_task(run(kernel, "work.read", {}, "k"))
        await shop.began.wait()
        second = asyncio.create_task(run(kernel, "work.read", {}, "k"))
        await until(lambda: next(iter(kernel.engine.runs))._callers == 2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        shop.gate.set()
        done = await second
    assert (ActionState.SUCCEEDED, [1]) == (done.action.state, shop.attempts)


async def test_a_lost_stream_is_a_lost_caller(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        stream = execute_stream(kernel, call_of("work.read", {}))
        await anext(stream)
        await shop.began.wait()
        await stream.aclose()
        action = await only_action(kernel)
        end = await wait_action(kernel.journal, ALICE, action.action_id, 5)
    assert ActionState.CANCELLED is end.state


async def test_a_caller_lost_before_its_row_is_written_leaves_nothing_running(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app, settings=BRIEF) as kernel:
        await kernel.catalog.resolve("acme", "work.read")
        call = asyncio.create_task(execute(kernel, call_of("work.read", {})))
        await until(lambda: bool(len(kernel.engine.runs)))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: not len(kernel.engine.runs))
        assert ["CANCELLED"] == await states(kernel)
    assert [] == shop.attempts


async def test_exhausted_reads_say_so(database: Database) -> None:
    """A read that dies with its server on every attempt is told apart from one that was cancelled."""
    shop = Workshop(attempts_max=1)
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.read", {}, "k"))
        await shop.began.wait()
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update actions set state = 'EXHAUSTED', reason = 'RETRY_BUDGET', settle_time = now()"
            )
        shop.gate.set()
        with pytest.raises(RetryBudgetExhausted):
            await call
