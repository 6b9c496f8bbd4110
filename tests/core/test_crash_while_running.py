"""A server dies while it runs something: what its effect class allows is ready again, the rest is ambiguous."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from placet.context import Context
from placet_server.core.execution.ending import StopCause, Stopped
from placet_server.core.execution.judgement import judge
from placet_server.core.kernel import Kernel
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.publication.settle import settle
from placet_server.core.recovery import ownership
from placet_server.core.recovery.ownership import release_forgotten
from placet_server.core.recovery.rescue import close_unwanted, rescue
from placet_server.loops.lease_rescuer import LeaseRescuer
from placet_server.model.ending_errors import EffectAmbiguous
from placet_server.model.errors import Draining
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.store.batch_item import Admission, Advance, Written
from placet_server.store.clock import Clock, FixedClock
from tests.core.kernels import call_of, declare_dead, only_action, open_kernel, run, states, until
from tests.core.workshop import Workshop
from tests.postgres import Database

pytestmark = pytest.mark.both_servers

READY, UNKNOWN = ActionState.QUEUED, ActionState.AMBIGUOUS


@asynccontextmanager
async def zombie(
    database: Database, shop: Workshop, capability: str, *, key: str = "k", clock: Clock | None = None
) -> AsyncIterator[Kernel]:
    """A boot that runs the capability, is declared dead meanwhile, and does not know."""
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        call = asyncio.create_task(run(kernel, capability, {}, key))
        await shop.began.wait()
        await declare_dead(kernel)
        yield kernel
    # Only after the crash: a caller who leaves before is heard of.
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize(
    ("capability", "touched", "state", "effect"),
    [
        ("work.read", False, READY, None),
        ("work.idempotent", True, READY, EffectState.UNKNOWN),
        ("work.reconcilable", True, UNKNOWN, EffectState.UNKNOWN),
        ("work.unsafe", True, UNKNOWN, EffectState.UNKNOWN),
        ("work.idempotent_marked", True, READY, EffectState.UNKNOWN),
        ("work.reconcilable_marked", True, UNKNOWN, EffectState.UNKNOWN),
        ("work.unsafe_marked", True, UNKNOWN, EffectState.UNKNOWN),
        ("work.idempotent_marked", False, READY, EffectState.NOT_DONE),
        ("work.reconcilable_marked", False, READY, EffectState.NOT_DONE),
        ("work.unsafe_marked", False, READY, EffectState.NOT_DONE),
    ],
)
async def test_a_crash_leaves_what_the_effect_class_says(
    database: Database, capability: str, touched: bool, state: ActionState, effect: EffectState | None
) -> None:
    shop = Workshop()
    shop.touch = touched
    async with open_kernel(database.dsn, shop.app) as survivor:
        async with zombie(database, shop, capability):
            pass
        before = await only_action(survivor)
        found = await rescue(survivor.journal)
        after = await only_action(survivor)
    assert (ActionState.RUNNING, 1) == (before.state, found.actions)
    assert (state, effect) == (after.state, after.effect)
    assert 0 == shop.effects


async def test_fifty_resends_on_two_servers_run_a_rescued_action_once(database: Database) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app) as one,
        open_kernel(database.dsn, shop.app) as two,
        zombie(database, shop, "work.idempotent"),
    ):
        await rescue(one.journal)
        shop.script = lambda context: asyncio.sleep(0.05, "done")
        calls = [run(kernel, "work.idempotent", {}, "k") for kernel in (one, two) for _ in range(25)]
        done = await asyncio.gather(*calls)
        stored = await only_action(one)
    assert [1, 2] == shop.attempts
    assert {'"done"'} == {executed.action.output_json for executed in done}
    assert (ActionState.SUCCEEDED, 2, False) == (stored.state, stored.attempt, stored.effect_unknown)


async def test_a_late_true_result_settles_what_was_given_up_as_ambiguous(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app) as survivor, zombie(database, shop, "work.unsafe") as old:
        await rescue(survivor.journal)
        with pytest.raises(EffectAmbiguous):
            await run(survivor, "work.unsafe", {}, "k")
        await late(old, shop)
        settled = await run(survivor, "work.unsafe", {}, "k")
    assert (ActionState.SUCCEEDED, EffectState.DONE) == (settled.action.state, settled.action.effect)
    assert 1 == shop.effects


async def test_a_late_result_after_the_action_was_made_ready_changes_nothing(database: Database) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app) as survivor,
        zombie(database, shop, "work.idempotent") as old,
    ):
        await rescue(survivor.journal)
        ready = await only_action(survivor)
        await late(old, shop)
        assert ready == await only_action(survivor)


async def test_a_mark_that_comes_before_the_rescue_makes_the_rescue_look_again(database: Database) -> None:
    """The rescuer read the action untouched; then the old attempt marked it, and may now touch the provider."""
    shop = Workshop()
    shop.touch = False
    marked = asyncio.Event()

    async def mark_late(context: Context) -> None:
        await shop.gate.wait()
        await context.effect()
        marked.set()
        await asyncio.Event().wait()

    shop.script = mark_late
    async with (
        open_kernel(database.dsn, shop.app) as survivor,
        zombie(database, shop, "work.unsafe_marked"),
    ):
        writer = survivor.journal.writer
        written = writer.advance

        def interfere(advance: Advance) -> asyncio.Future[Written | None]:
            async def after_the_mark() -> Written | None:
                shop.gate.set()
                await marked.wait()
                return await written(advance)

            return asyncio.ensure_future(after_the_mark())

        writer.advance = interfere  # type: ignore[method-assign]
        assert 0 == (await rescue(survivor.journal)).actions
        writer.advance = written  # type: ignore[method-assign]
        assert 1 == (await rescue(survivor.journal)).ambiguous


async def test_two_rescuers_at_once_take_each_action_once(database: Database) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app) as one,
        open_kernel(database.dsn, shop.app) as two,
        open_kernel(database.dsn, shop.app) as lost,
    ):
        calls = [asyncio.create_task(run(lost, "work.idempotent", {}, f"k{i}")) for i in range(20)]
        await until(lambda: len(shop.attempts) == 20)
        await declare_dead(lost)
        first, second = await asyncio.gather(rescue(one.journal), rescue(two.journal))
        async with one.journal.pool.connection() as connection:
            requeued = await connection.fetchval("select count(*) from events where type = 'requeued'")
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert ["QUEUED"] * 20 == await states(one)
    assert (20, 20) == (first.requeued + second.requeued, requeued)


async def test_what_the_provider_no_longer_deduplicates_is_ambiguous(database: Database) -> None:
    shop = Workshop()
    clock = FixedClock(datetime.now(UTC))
    async with (
        open_kernel(database.dsn, shop.app, clock=clock) as survivor,
        zombie(database, shop, "work.idempotent", clock=clock),
    ):
        clock.advance(timedelta(days=2))
        assert 1 == (await rescue(survivor.journal)).ambiguous


async def test_a_ready_action_whose_deduplication_ran_out_is_never_claimed(database: Database) -> None:
    shop = Workshop()
    clock = FixedClock(datetime.now(UTC))
    async with (
        open_kernel(database.dsn, shop.app, clock=clock) as survivor,
        zombie(database, shop, "work.idempotent", clock=clock),
    ):
        assert 1 == (await rescue(survivor.journal)).requeued
        clock.advance(timedelta(days=2))
        resend = asyncio.create_task(run(survivor, "work.idempotent", {}, "k"))
        await asyncio.sleep(0.2)
        assert 1 == await close_unwanted(survivor.journal)
        with pytest.raises(EffectAmbiguous):
            await resend
        closed = await only_action(survivor)
    assert ([1], "EFFECT_KEY_EXPIRED") == (shop.attempts, closed.cause)


@pytest.mark.parametrize(
    ("capability", "state"), [("work.read", ActionState.EXHAUSTED), ("work.idempotent", UNKNOWN)]
)
async def test_the_last_attempt_lost_ends_truthfully(
    database: Database, capability: str, state: ActionState
) -> None:
    shop = Workshop(attempts_max=1)
    async with open_kernel(database.dsn, shop.app) as survivor, zombie(database, shop, capability):
        await rescue(survivor.journal)
        lost = await only_action(survivor)
    assert state is lost.state
    if state is ActionState.EXHAUSTED:
        assert ("RETRY_BUDGET", None) == (lost.reason, outcome_of(lost).effect)


async def test_a_read_that_nobody_can_ask_for_again_is_cancelled(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app) as survivor, zombie(database, shop, "work.read", key=""):
        await rescue(survivor.journal)
        lost = await only_action(survivor)
    assert (ActionState.CANCELLED, "SHUTDOWN") == (lost.state, lost.reason)


async def test_what_an_alive_server_runs_is_left_alone(database: Database) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app) as one, open_kernel(database.dsn, shop.app) as two:
        call = asyncio.create_task(run(one, "work.idempotent", {}, "k"))
        await shop.began.wait()
        rescued = await rescue(two.journal)
        released = await release_forgotten(one.engine)
        shop.gate.set()
        done = await call
    assert (0, 0, ActionState.SUCCEEDED) == (rescued.actions, released, done.action.state)


async def test_nobody_is_declared_dead_before_the_store_answered_for_a_whole_lease(
    database: Database,
) -> None:
    shop = Workshop()
    clock = FixedClock(datetime.now(UTC))
    store_ok = False
    async with (
        open_kernel(database.dsn, shop.app, clock=clock) as survivor,
        open_kernel(database.dsn, shop.app, clock=clock) as silent,
    ):
        call = asyncio.create_task(run(silent, "work.unsafe", {}, "k"))
        await shop.began.wait()
        clock.advance(timedelta(minutes=1))
        rescuer = LeaseRescuer(survivor.journal, store_ok_for=lambda seconds: store_ok, lease_seconds=15.0)
        await rescuer.step()
        assert ["RUNNING"] == await states(survivor)
        store_ok = True
        await rescuer.step()
        assert ["AMBIGUOUS"] == await states(survivor)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_boot_that_was_declared_dead_starts_nothing(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as dead:
        await declare_dead(dead)
        for key in ("", "k"):
            with pytest.raises(Draining):
                await run(dead, "work.read", {}, key)
        assert [] == await states(dead)
    assert [] == shop.attempts


async def test_a_boot_that_was_declared_dead_claims_nothing(database: Database) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app) as survivor,
        open_kernel(database.dsn, shop.app) as dead,
        zombie(database, shop, "work.idempotent"),
    ):
        await rescue(survivor.journal)
        await declare_dead(dead)
        resend = asyncio.create_task(run(dead, "work.idempotent", {}, "k", time_left_seconds=1.0))
        await asyncio.gather(resend, return_exceptions=True)
        assert [1] == shop.attempts
        assert ["QUEUED"] == await states(survivor)


async def test_the_checkpoint_of_a_lost_attempt_reaches_the_next_one(database: Database) -> None:
    shop = Workshop()
    seen: list[object] = []

    async def book(context: Context) -> str:
        seen.append((context.provider_operation, context.provider_cursor, context.effect_key))
        if context.attempt == 1:
            await context.checkpoint("op-7", {"page": 2})
            shop.gate.set()
            await asyncio.Event().wait()
        return "booked"

    shop.script = book
    async with open_kernel(database.dsn, shop.app) as survivor, zombie(database, shop, "work.idempotent"):
        await shop.gate.wait()
        await rescue(survivor.journal)
        done = await run(survivor, "work.idempotent", {}, "k")
    key = f"placet-{done.action.action_id}"
    assert [(None, None, key), ("op-7", {"page": 2}, key)] == seen


async def test_a_run_that_failed_by_a_fault_of_the_server_is_not_taken_for_one_that_never_began(
    database: Database,
) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:

        def broken(name: str, capability: str) -> None:
            if name == "provider_response_received":
                raise AssertionError("a fault of the server")

        kernel.journal.boundary.hook = broken
        call = asyncio.create_task(run(kernel, "work.unsafe", {}, "k", time_left_seconds=None))
        await until(lambda: shop.effects and not len(kernel.engine.runs))
        await age(kernel)
        assert 1 == await release_forgotten(kernel.engine)
        with pytest.raises(EffectAmbiguous):
            await call
    assert 1 == shop.effects


@pytest.mark.parametrize("capability", ["work.idempotent", "work.unsafe", "work.unsafe_marked"])
async def test_what_is_known_of_a_rescued_row_is_what_is_stored(database: Database, capability: str) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        await admit_and_forget(kernel, capability, "k")
        lost = await only_action(kernel)
        verdict = judge(lost, Stopped(cause=StopCause.INSTANCE_LOST), now_us=lost.create_time_us)
        known = await settle(kernel.journal, lost, verdict, as_read=True)
        assert await only_action(kernel) == known


async def test_actions_that_run_do_not_hide_one_that_is_forgotten(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "BATCH_MAX", 1)
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        calls = [asyncio.create_task(run(kernel, "work.unsafe", {}, f"k{number}")) for number in range(2)]
        await until(lambda: len(shop.attempts) == 2)
        await admit_and_forget(kernel, "work.unsafe", "lost")
        await age(kernel)
        assert 1 == await release_forgotten(kernel.engine)
        shop.gate.set()
        await asyncio.gather(*calls)
        assert ["SUCCEEDED", "SUCCEEDED", "QUEUED"] == await states(kernel)


async def test_an_admission_whose_reply_was_lost_is_ready_again_at_no_cost(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        await admit_and_forget(kernel, "work.unsafe", "k")
        assert 0 == await release_forgotten(kernel.engine)
        await age(kernel)
        assert 1 == await release_forgotten(kernel.engine)
        ready = await only_action(kernel)
        assert (READY, EffectState.NOT_DONE, False) == (ready.state, ready.effect, ready.effect_unknown)
        done = await run(kernel, "work.unsafe", {}, "k")
    assert (ActionState.SUCCEEDED, 1) == (done.action.state, shop.effects)


async def late(old: Kernel, shop: Workshop) -> None:
    """The old attempt returns, and is done with whatever it then writes."""
    tasks = [old_run.task for old_run in old.engine.runs if old_run.task is not None]
    assert 1 == len(tasks)
    shop.gate.set()
    await asyncio.wait(tasks)


async def age(kernel: Kernel) -> None:
    """Everything was started a minute earlier."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update actions set start_time = start_time - interval '1 minute'")


async def admit_and_forget(kernel: Kernel, capability: str, key: str) -> None:
    """The row is written, and the run that wanted it ends without learning so."""
    writer = kernel.journal.writer
    admit = writer.admit

    def lose_reply(admission: Admission) -> asyncio.Future[Written | None]:
        async def lost() -> Written | None:
            await admit(admission)
            raise Draining

        return asyncio.ensure_future(lost())

    writer.admit = lose_reply  # type: ignore[method-assign]
    with pytest.raises(Draining):
        await run(kernel, capability, {}, key)
    writer.admit = admit  # type: ignore[method-assign]
    assert "RUNNING" == (await states(kernel))[-1]
    assert call_of(capability, {}, key).invocation.idempotency_key == key
