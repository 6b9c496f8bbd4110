"""A submission answered with OK is stored, and is run: once, in time, by a server that can; or it is told why not."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet.contract import Credentials
from placet_server.core.admission.execute import execute
from placet_server.core.execution.threads import HandlerThreads
from placet_server.core.kernel import Kernel
from placet_server.core.publication.outcome import error_of
from placet_server.core.publication.promote import next_due_seconds, promote
from placet_server.core.recovery.rescue import close_unwanted
from placet_server.loops.queue_runner import QueueRunner
from placet_server.loops.wake_sweeper import WakeSweeper
from placet_server.model.action import OnDuplicate, Submission
from placet_server.model.caller import Caller, Credential
from placet_server.model.ending_errors import QueueDelayExhausted
from placet_server.model.errors import Draining, Overloaded, WaitExpired
from placet_server.model.gate_errors import (
    DuplicateRefused,
    IdempotencyConflict,
    IdempotencyKeyRequired,
    InputSchemaViolation,
)
from placet_server.model.lifecycle import ActionState
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    ALICE,
    QUEUE,
    call_of,
    dispatch,
    only_action,
    open_kernel,
    output,
    places,
    put,
    read,
    run,
    states,
    until,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

# A day that stored rows of other tests cannot know.
START = datetime(2030, 1, 1, tzinfo=UTC)


async def test_it_is_stored_before_it_is_answered_and_run_after(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        submitted = await put(
            kernel, "work.idempotent", {"order": "7"}, "k", place=Submission(queue="slow", priority=3)
        )
        action = submitted.action
        assert (ActionState.QUEUED, 0, "slow", 3) == (
            action.state,
            action.attempt,
            action.queue,
            action.priority,
        )
        assert action == await read(kernel, action.action_id)
        assert [] == shop.attempts
        await work_off(kernel)
        done = await read(kernel, action.action_id)
        assert (ActionState.SUCCEEDED, {"order": "7"}, 1) == (done.state, output(done), done.attempt)
        assert [1] == shop.attempts
        assert {"queue_ready": [], "queue_delayed": [], "dead_letters": []} == await places(kernel)


@pytest.mark.parametrize("when", ["waiting", "running", "over"])
async def test_the_same_key_is_the_same_action(database: Database, when: str) -> None:
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        first = await put(kernel, "work.unsafe", {}, "k")
        if when != "waiting":
            await dispatch(kernel)
            await shop.began.wait()
        if when == "over":
            shop.gate.set()
            await work_off(kernel)
        again = await put(kernel, "work.unsafe", {}, "k")
        assert (False, True) == (first.attached, again.attached)
        assert first.action.action_id == again.action.action_id
        with pytest.raises(IdempotencyConflict):
            await put(kernel, "work.unsafe", {"order": "other"}, "k")
        with pytest.raises(DuplicateRefused):
            await put(kernel, "work.unsafe", {}, "k", on_duplicate=OnDuplicate.REFUSE)
        shop.gate.set()
        await work_off(kernel)
        assert [1] == shop.attempts
        assert ["SUCCEEDED"] == await states(kernel)


async def test_submitting_at_once_from_two_servers_stores_one(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as other,
    ):
        answers = await asyncio.gather(
            *(put(k, "work.unsafe", {}, "k") for k in (one, other) for _ in range(8))
        )
        assert 1 == len({answer.action.action_id for answer in answers})
        assert 1 == sum(not answer.attached for answer in answers)
        await asyncio.gather(work_off(one), work_off(other))
        assert [1] == shop.attempts


async def test_what_the_gates_refuse_is_not_stored(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE) as kernel:
        with pytest.raises(IdempotencyKeyRequired):
            await put(kernel, "work.unsafe", {})
        with pytest.raises(InputSchemaViolation):
            await put(kernel, "work.read", {"order": 1})
        kernel.start_draining()
        with pytest.raises(Draining):
            await put(kernel, "work.read", {})
        assert [] == await states(kernel)


async def test_without_a_key_every_submission_is_another(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        for _ in range(2):
            await put(kernel, "work.read", {})
        await work_off(kernel)
        assert ["SUCCEEDED", "SUCCEEDED"] == await states(kernel)


@pytest.mark.parametrize("said", ["delay", "time"])
async def test_it_is_not_run_before_its_time(database: Database, said: str) -> None:
    shop = Workshop()
    shop.gate.set()
    clock = FixedClock(START)
    place = Submission(delay_seconds=60.0)
    if said == "time":
        place = Submission(ready_time_us=int((START + timedelta(seconds=60)).timestamp() * 1_000_000))
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        submitted = await put(kernel, "work.unsafe", {}, "k", place=place)
        for _ in range(2):
            await promote(kernel.journal)
            await work_off(kernel)
            assert ["QUEUED"] == await states(kernel)
            assert 1 <= (await next_due_seconds(kernel.journal) or 0) <= 60
            clock.advance(timedelta(seconds=29.5))
        # Nor by who brings its key.
        with pytest.raises(WaitExpired):
            await run(kernel, "work.unsafe", {}, "k", time_left_seconds=0.3)
        assert [] == shop.attempts
        clock.advance(timedelta(seconds=1))
        await promote(kernel.journal)
        await work_off(kernel)
        assert ActionState.SUCCEEDED is (await read(kernel, submitted.action.action_id)).state


async def test_a_time_that_has_passed_is_now(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.read", {}, place=Submission(ready_time_us=1))
        await work_off(kernel)
        assert ["SUCCEEDED"] == await states(kernel)


async def test_what_nobody_begins_in_time_is_exhausted_and_never_run(database: Database) -> None:
    shop = Workshop(queue_delay_max=30)
    shop.gate.set()
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        swept = (await put(kernel, "work.unsafe", {}, "swept")).action.action_id
        clock.advance(timedelta(seconds=31))
        assert 1 == await close_unwanted(kernel.journal)
        found = (await put(kernel, "work.unsafe", {}, "found")).action.action_id
        clock.advance(timedelta(seconds=31))
        await work_off(kernel)
        for action_id in (swept, found):
            action = await read(kernel, action_id)
            assert (ActionState.EXHAUSTED, "QUEUE_DELAY", 0) == (action.state, action.reason, action.attempt)
            assert isinstance(error_of(action), QueueDelayExhausted)
        assert {"queue_ready": [], "queue_delayed": [], "dead_letters": [swept, found]} == await places(
            kernel
        )
        assert [] == shop.attempts


async def test_a_long_input_arrives_whole(database: Database) -> None:
    app = App("long")

    @app.tool("long.measure", "read")
    async def measure(context: Context, text: str) -> int:
        return len(text)

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        sizes = (10, 30_000, 70_000, 150_000)
        ids = [(await put(kernel, "long.measure", {"text": "ä" * size})).action.action_id for size in sizes]
        await work_off(kernel)
        assert list(sizes) == [output(await read(kernel, action_id)) for action_id in ids]


async def test_what_has_no_handler_here_waits_for_a_server_that_has(database: Database) -> None:
    shop, other = Workshop(), App("other")
    shop.gate.set()

    @other.tool("other.greet", "read")
    async def greet() -> str:
        return "hello"

    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as able:
        for order in range(5):
            await put(able, "work.unsafe", {"order": str(order)}, f"k{order}")
        async with open_kernel(database.dsn, other, queue=QUEUE) as unable:
            await put(unable, "other.greet", {})
            await work_off(unable)
            assert 5 * ["QUEUED"] + ["SUCCEEDED"] == await states(unable)
            assert 5 == len((await places(unable))["queue_ready"])
        await work_off(able)
        assert 6 * ["SUCCEEDED"] == await states(able)


async def test_one_of_ten_that_cannot_be_read_fails_alone(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        ids = [
            (await put(kernel, "work.unsafe", {"order": str(n)}, f"k{n}")).action.action_id for n in range(10)
        ]
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update actions set input = '{\"order\"' where action_id = $1", ids[2])
        await work_off(kernel)
        assert ["FAILED"] + 9 * ["SUCCEEDED"] == sorted(await states(kernel))
        failed = await read(kernel, ids[2])
        assert ("input_altered", "NOT_DONE") == (failed.failure_code, failed.effect)
        assert [ids[2]] == (await places(kernel))["dead_letters"]
        assert 9 == shop.effects


async def test_a_credential_that_expired_in_the_queue_is_not_used(database: Database) -> None:
    shop = Workshop(credentials=Credentials())
    caller = Caller(
        tenant="acme",
        subject="alice",
        scopes=frozenset({"*"}),
        credential=Credential(handle="vault/1", expire_time_us=2**52),
    )
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "k", caller=caller)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(f"update actions set caller = replace(caller, '{2**52}', '1')")
        await work_off(kernel)
        failed = await only_action(kernel)
        assert ("credential_expired", "FORBIDDEN", "NOT_DONE") == (
            failed.failure_code,
            failed.failure_category,
            failed.effect,
        )
        assert [] == shop.attempts


async def test_never_more_are_claimed_than_can_run(database: Database) -> None:
    shop = Workshop()
    settings = type(QUEUE)(slots_max=3, poll_seconds=0.0)
    async with open_kernel(database.dsn, shop.app, queue=settings) as kernel:
        for order in range(10):
            await put(kernel, "work.read", {"order": str(order)})
        await dispatch(kernel)
        await until(lambda: 3 == shop.at_once)
        assert 3 * ["RUNNING"] + 7 * ["QUEUED"] == sorted(await states(kernel), reverse=True)
        await dispatch(kernel)
        assert 7 == len((await places(kernel))["queue_ready"])
        shop.gate.set()
        await work_off(kernel)
        assert 3 == shop.at_once_max
        assert 0 == kernel.dispatcher.running  # type: ignore[union-attr]


async def test_plain_handlers_leave_threads_to_who_waits(database: Database) -> None:
    app, began, go = App("plain"), [], asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.tool("plain.wait", "read")
    def wait() -> int:
        began.append(1)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result()
        return 1

    @app.tool("plain.quick", "read")
    async def quick() -> int:
        return 2

    async with open_kernel(database.dsn, app, queue=QUEUE) as kernel:
        object.__setattr__(kernel.engine, "threads", HandlerThreads(4))
        for _ in range(10):
            await put(kernel, "plain.wait", {})
        await put(kernel, "plain.quick", {})
        await dispatch(kernel)
        await until(lambda: 3 == len(began))
        # The fourth is for callers; and what needs no thread does not wait for one.
        await until(lambda: 3 == kernel.dispatcher.running)  # type: ignore[union-attr]
        assert 1 == (await states(kernel)).count("SUCCEEDED")
        waiting = asyncio.create_task(run(kernel, "plain.wait", {}))
        await until(lambda: 4 == len(began))
        with pytest.raises(Overloaded):
            await run(kernel, "plain.wait", {})
        await dispatch(kernel)
        assert 4 == len(began)
        go.set()
        await waiting
        await work_off(kernel)
        assert 12 * ["SUCCEEDED"] == await states(kernel)


async def test_a_resend_runs_it_without_waiting_for_its_turn(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        submitted = await put(kernel, "work.unsafe", {"order": "9"}, "k")
        executed = await run(kernel, "work.unsafe", {"order": "9"}, "k")
        assert (True, submitted.action.action_id) == (executed.attached, executed.action.action_id)
        assert {"order": "9"} == output(executed.action)
        await work_off(kernel)
        assert [1] == shop.attempts


@pytest.mark.parametrize("round_", range(5))
async def test_resends_and_claims_of_two_servers_run_it_once(database: Database, round_: int) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as one,
        open_kernel(database.dsn, shop.app, queue=QUEUE) as other,
    ):
        for order in range(10):
            await put(one, "work.unsafe", {"order": str(order)}, f"k{order}")

        async def resend(kernel: Kernel, order: int) -> Any:
            return (
                await execute(kernel, call_of("work.unsafe", {"order": str(order)}, f"k{order}"))
            ).action.action_id

        resends = [asyncio.create_task(resend(k, n)) for n in range(10) for k in (one, other)]
        for _ in range(round_):
            await asyncio.sleep(0)
        await asyncio.gather(dispatch(one), dispatch(other))
        shop.gate.set()
        answers = await asyncio.gather(*resends)
        assert 10 == len(set(answers)) == shop.effects
        assert 10 * [1] == shop.attempts
        assert 10 * ["SUCCEEDED"] == await states(one)
        assert {"queue_ready": [], "queue_delayed": [], "dead_letters": []} == await places(one)


async def test_draining_takes_nothing_more_and_lets_end_what_runs(database: Database) -> None:
    shop = Workshop()
    settings = type(QUEUE)(slots_max=2, poll_seconds=0.0)
    async with open_kernel(database.dsn, shop.app, queue=settings) as kernel:
        for order in range(5):
            await put(kernel, "work.read", {"order": str(order)})
        await dispatch(kernel)
        await until(lambda: 2 == shop.at_once)
        draining = asyncio.create_task(kernel.drain(5.0))
        await asyncio.sleep(0)
        assert not await kernel.dispatcher.run_once()  # type: ignore[union-attr]
        shop.gate.set()
        assert await draining
        assert 3 * ["QUEUED"] + 2 * ["SUCCEEDED"] == sorted(await states(kernel))


async def test_a_claim_under_way_is_waited_for_by_the_drain(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await put(kernel, "work.unsafe", {}, "k")
        claiming = asyncio.create_task(dispatch(kernel))
        assert kernel.dispatcher is not None
        async with asyncio.timeout(5.0):
            # At every pass of the loop: a claim may take less than `until` pauses.
            while not kernel.dispatcher.is_claiming:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert await kernel.drain(5.0)
        await claiming
        assert ["SUCCEEDED"] == await states(kernel)


async def test_submitting_wakes_whoever_takes_work(database: Database) -> None:
    """The runner polls once a minute here, so what is run in time was told of."""
    shop = Workshop()
    shop.gate.set()
    settings = type(QUEUE)(poll_seconds=60.0)
    async with open_kernel(database.dsn, shop.app, queue=settings) as kernel:
        assert kernel.dispatcher is not None
        kernel.engine.supervisor.start(QueueRunner(kernel.dispatcher, kernel.journal.doorbell).run())
        kernel.engine.supervisor.start(WakeSweeper(kernel.journal, poll_seconds=60.0).run())
        await asyncio.sleep(0.1)
        for order in range(20):
            await put(kernel, "work.unsafe", {"order": str(order)}, f"k{order}")
            await until(lambda n=order: n + 1 == shop.effects)
        # The sweep looks once a minute, and comes all the same.
        for name, seconds in (("hour", 3600.0), ("later", 0.2)):
            await put(kernel, "work.unsafe", {}, name, place=Submission(delay_seconds=seconds))
        await until(lambda: 21 == shop.effects)
        await until(lambda: not len(kernel.engine.runs))
        assert [*20 * ["SUCCEEDED"], "QUEUED", "SUCCEEDED"] == await states(kernel)


async def test_whoever_has_no_slot_free_waits_for_one_and_does_not_ask_on_and_on(database: Database) -> None:
    shop = Workshop()
    settings = type(QUEUE)(poll_seconds=3600.0, slots_max=1)
    async with open_kernel(database.dsn, shop.app, queue=settings) as kernel:
        assert kernel.dispatcher is not None
        runner = QueueRunner(kernel.dispatcher, kernel.journal.doorbell)
        for key in "ab":
            await put(kernel, "work.unsafe", {}, key)
        await runner.step()
        await shop.began.wait()
        # What was rung for is taken, and its last look is an hour ago.
        await kernel.journal.doorbell.wait(0)
        kernel.dispatcher._lines.look_soon()
        pause = asyncio.ensure_future(runner._pause(settings.poll_seconds))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not pause.done()
        shop.gate.set()
        async with asyncio.timeout(30):
            await pause
            await runner.step()
        await until(lambda: 2 == shop.effects)


async def test_more_lines_than_are_known_at_a_time_are_all_worked_off(database: Database) -> None:
    shop = Workshop()
    shop.gate.set()
    settings = type(QUEUE)(lines_max=3, slots_max=2, poll_seconds=0.0)
    async with open_kernel(database.dsn, shop.app, queue=settings) as kernel:
        for number in range(20):
            caller = Caller(tenant=f"t{number % 10}", subject="s", scopes=ALICE.scopes)
            await put(kernel, "work.read", {}, caller=caller, place=Submission(queue=f"q{number}"))
        async with asyncio.timeout(20):
            while 20 > shop.effects:
                await work_off(kernel)


async def test_better_priority_runs_first_whatever_the_capability(database: Database) -> None:
    order: list[int] = []
    app = App("order")
    for name in ("order.a", "order.b"):

        @app.tool(name, "read")
        async def note(priority: int) -> None:
            order.append(priority)

    settings = type(QUEUE)(slots_max=1, poll_seconds=0.0)
    async with open_kernel(database.dsn, app, queue=settings) as kernel:
        for number, priority in enumerate((7, 0, 9, 3, 5, 1, 8, 2)):
            name = ("order.a", "order.b")[number % 2]
            await put(kernel, name, {"priority": priority}, place=Submission(priority=priority))
        await work_off(kernel)
        assert [0, 1, 2, 3, 5, 7, 8, 9] == order
