"""What may have happened is asked about until somebody knows, and settled once: never against the truth that the lost
attempt still tells, a person's verdict, or a cancel.
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

import placet
from placet.context import Context
from placet.lookup import LookupContext
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.execution.ending import Returned, ReturnedBadly
from placet_server.core.execution.finding import (
    Committed,
    Finding,
    NotCommitted,
    NotKnown,
    StillRunning,
    judge_finding,
)
from placet_server.core.kernel import Kernel
from placet_server.core.recovery import resolve
from placet_server.core.recovery.reconcile import VISIBLE_SECONDS, Reconciler
from placet_server.core.recovery.rescue import rescue
from placet_server.core.recovery.resolve import GRACE_SECONDS, ResolveCommand, resolve_ambiguous
from placet_server.loops.effect_reconciler import EffectReconciler
from placet_server.model.action import Action, Requester
from placet_server.model.capability import Capability
from placet_server.model.ending_errors import EffectAmbiguous, HandlerFailed
from placet_server.model.errors import StateConflict
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    ALICE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    output,
    places,
    put,
    read,
    run,
    until,
    work_off,
)
from tests.core.workshop import Workshop
from tests.postgres import Database

S = ActionState
START = datetime(2030, 1, 1, tzinfo=UTC)
OVER = timedelta(seconds=60 + GRACE_SECONDS)
SECOND = timedelta(seconds=1)
HERE = placet.Committed({"order": "found"})
NOT_THERE, AGAIN = placet.NotCommitted(message="no such order"), placet.NotCommitted(retryable=True)


class Bench(Workshop):
    """Its handlers break off and say nothing until they are repaired; its lookups say what they are told to."""

    def __init__(self, *answers: object, **options: Any) -> None:
        super().__init__(**options)
        self.answers: list[object] = list(answers)

        async def fail(context: Context) -> Any:
            raise ConnectionResetError

        async def find(context: LookupContext) -> Any:
            return self.answers.pop(0) if self.answers else placet.NotKnown("line is busy")

        self.script = fail
        self.find = find

    def repair(self) -> None:
        self.script = None
        self.gate.set()


def reconciler(kernel: Kernel) -> Reconciler:
    return EffectReconciler(kernel).reconciler


def capability_of(kernel: Kernel) -> resolve.CapabilityOf:
    async def found(action: Action) -> Capability:
        return (await kernel.catalog.resolve("acme", action.capability)).capability

    return found


async def ask(asking: Reconciler) -> None:
    await asking.run_once()
    await asking.idle()


async def doubt(kernel: Kernel, name: str = "reconcilable_marked", key: str = "k") -> str:
    action_id = (await put(kernel, f"work.{name}", {}, key)).action.action_id
    await work_off(kernel)
    assert S.AMBIGUOUS is (await read(kernel, action_id)).state
    return action_id


async def events(kernel: Kernel, action_id: str) -> list[tuple[str, dict[str, Any]]]:
    sql = "select type, body from events where action_id = $1 order by sequence"
    async with kernel.journal.pool.connection() as connection:
        return [(r["type"], orjson.loads(r["body"])) for r in await connection.fetch(sql, action_id)]


async def asked(kernel: Kernel) -> list[tuple[int, str | None, bool]]:
    """How often, what was found last, and whether it was given up; of each row there is."""
    sql = "select asked, finding, give_up_time is not null from reconciles order by action_id"
    async with kernel.journal.pool.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql)]


# What an answer makes of the row: while the lost attempt may act, and once it cannot. None: asked again.
ANSWERS: list[tuple[Finding, ActionState | None, ActionState | None]] = [
    (Committed(ending=Returned(output_json="1", output_digest="")), S.SUCCEEDED, S.SUCCEEDED),
    (Committed(ending=ReturnedBadly(path="", message="")), S.FAILED, S.FAILED),
    (NotCommitted(), None, S.FAILED),
    (NotCommitted(retryable=True), None, S.QUEUED),
    (NotCommitted(not_running=True), S.FAILED, S.FAILED),
    (StillRunning(), None, None),
    (NotKnown(), None, None),
]


@pytest.mark.parametrize(("finding", "early", "late"), ANSWERS, ids=str)
@pytest.mark.parametrize("effect_class", ["IDEMPOTENT", "RECONCILABLE", "UNSAFE"])
def test_every_answer_means_one_thing(
    finding: Finding, early: ActionState | None, late: ActionState | None, effect_class: str
) -> None:
    def judged(is_over: bool, **members: Any) -> ActionState | None:
        row: dict[str, Any] = {"queue": "default", "attempt": 1, "attempts_max": 2} | members
        action = Action(
            action_id="a",
            requester=Requester(tenant="t", subject="s", kind="USER"),
            capability="c",
            version="1",
            contract_digest="",
            effect_class=effect_class,
            state=S.AMBIGUOUS,
            effect=EffectState.UNKNOWN,
            effect_unknown=True,
            input_json=None,
            input_digest="",
            **row,
        )
        verdict = judge_finding(action, finding, is_over=is_over, now_us=0)
        if verdict is None:
            return None
        is_done = isinstance(finding, Committed)
        assert (verdict.effect, verdict.effect_unknown) == (
            EffectState.DONE if is_done else EffectState.NOT_DONE,
            False,
        )
        return verdict.state

    assert (early, late) == (judged(False), judged(True))
    assert (S.EXHAUSTED if late is S.QUEUED else late) == judged(True, attempt=2)
    # Whose caller schedules the retries is told; and what nobody wants is not tried again.
    assert (S.FAILED if late is S.QUEUED else late) == judged(True, queue="")
    unwanted = late if late is None or isinstance(finding, Committed) else S.CANCELLED
    assert unwanted == judged(True, cancel_requested_time_us=1)


@pytest.mark.both_servers
async def test_what_was_done_is_found_at_once_and_whoever_asks_gets_it(database: Database) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Bench(HERE).app, queue=QUEUE, clock=clock) as kernel:
        with pytest.raises(EffectAmbiguous):
            await run(kernel, "work.reconcilable", {}, "k")
        asking = reconciler(kernel)
        # An answer that is on its way comes first.
        await ask(asking)
        assert [(0, None, False)] == await asked(kernel)
        clock.advance(SECOND)
        await ask(asking)
        assert [] == await asked(kernel)
        again = await run(kernel, "work.reconcilable", {}, "k")
        assert {"order": "found"} == output(again.action)
        type_, body = (await events(kernel, again.action.action_id))[-1]
        known = {
            "evidence": "lookup of work.reconcilable version 1",
            "reason": "the effect is there",
            "requester": "server",
            "verdict": "DONE",
        }
        assert ("settled", known) == (type_, body["resolution"])


async def test_what_was_not_done_is_believed_once_nothing_can_do_it_any_more(database: Database) -> None:
    shop, clock = Bench(AGAIN, AGAIN, AGAIN), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)
        asking = reconciler(kernel)
        # Nor as soon as its time is over, for it may need some more to end.
        for times, passed in ((1, SECOND), (2, OVER - 2 * SECOND)):
            clock.advance(passed)
            await ask(asking)
            assert [(times, "not_committed", False)] == await asked(kernel)
        clock.advance(OVER)
        await ask(asking)
        assert [] == await asked(kernel)
        action = await read(kernel, action_id)
        assert (S.QUEUED, EffectState.NOT_DONE, False) == (action.state, action.effect, action.effect_unknown)
        type_, body = (await events(kernel, action_id))[-1]
        assert ("requeued", "RECONCILED", "NOT_DONE") == (type_, body["cause"], body["resolution"]["verdict"])
        shop.repair()
        clock.advance(timedelta(minutes=1))
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("insert into queue_ready select * from queue_delayed")
        await work_off(kernel)
        action = await read(kernel, action_id)
        assert (S.SUCCEEDED, 2, 1) == (action.state, action.attempt, shop.effects)


@pytest.mark.parametrize(
    ("name", "answer", "ended", "dead"),
    [
        ("reconcilable_marked", NOT_THERE, S.FAILED, True),
        ("reconcilable", AGAIN, S.EXHAUSTED, True),
    ],
)
async def test_what_is_not_tried_again_is_a_dead_letter(
    database: Database, name: str, answer: object, ended: ActionState, dead: bool
) -> None:
    clock = FixedClock(START)
    async with open_kernel(database.dsn, Bench(answer).app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel, name)
        clock.advance(OVER)
        await ask(reconciler(kernel))
        action = await read(kernel, action_id)
        assert (ended, EffectState.NOT_DONE, "not_done") == (action.state, action.effect, action.failure_code)
        assert [action_id] == (await places(kernel))["dead_letters"]
        assert [] == await asked(kernel)


async def test_who_executes_is_told_and_may_try_again_under_the_same_key(database: Database) -> None:
    shop, clock = Bench(AGAIN), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        with pytest.raises(EffectAmbiguous):
            await run(kernel, "work.reconcilable", {}, "k")
        clock.advance(OVER)
        await ask(reconciler(kernel))
        shop.repair()
        done = await run(kernel, "work.reconcilable", {}, "k")
        assert (1, False) == (shop.effects, done.attached)


async def test_who_does_not_know_is_asked_less_and_less_often_and_given_up(database: Database) -> None:
    shop, clock = Bench(reconcile_elapsed_max=10.0), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)
        asking = reconciler(kernel)
        seconds = []
        for second in range(1, 16):
            clock.advance(SECOND)
            before = len(shop.questions)
            await ask(asking)
            seconds += [second] * (len(shop.questions) - before)
        assert [1, 2, 4, 8] == seconds
        clock.advance(timedelta(hours=1))
        await ask(asking)
        await ask(asking)
        told = "not_known: line is busy"
        assert [(5, told, True)] == await asked(kernel)
        given_up = [body for type_, body in await events(kernel, action_id) if type_ == "reconcile_given_up"]
        assert [{"asked": 5, "finding": told}] == given_up
        assert S.AMBIGUOUS is (await read(kernel, action_id)).state


async def test_nobody_asks_who_cannot_be_asked_or_does_not_want_to(database: Database) -> None:
    shop, clock = Bench(reconcile_automatic=False), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        ids = [await doubt(kernel, name, name) for name in ("reconcilable", "unsafe")]
        clock.advance(SECOND)
        await ask(reconciler(kernel))
        assert [(1, "not_automatic", True), (1, "no_lookup", True)] == await asked(kernel)
        assert [] == shop.questions
        assert ["ambiguous"] * 2 == [(await events(kernel, each))[-1][0] for each in ids]


@pytest.mark.parametrize("truth_first", [True, False])
async def test_the_late_truth_and_what_is_found_make_one_end(database: Database, truth_first: bool) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as old,
        open_kernel(database.dsn, shop.app) as survivor,
    ):
        action_id = (await put(old, "work.reconcilable", {"order": "true"}, "k")).action.action_id
        await dispatch(old)
        await shop.began.wait()
        await declare_dead(old)
        await rescue(survivor.journal)

        async def find(context: LookupContext) -> Any:
            if truth_first:
                await tell_the_truth()
            return HERE

        async def tell_the_truth() -> None:
            shop.gate.set()
            await until(lambda: not len(old.engine.runs))

        shop.find = find
        await make_due(survivor)
        await ask(reconciler(survivor))
        await tell_the_truth()
        action = await read(survivor, action_id)
        ends = [body for type_, body in await events(survivor, action_id) if type_ == "settled"]
        assert (S.SUCCEEDED, 1, []) == (action.state, len(ends), await asked(survivor))
        assert {"order": "true" if truth_first else "found"} == output(action)
        assert truth_first == ("resolution" not in ends[0])


async def make_due(kernel: Kernel) -> None:
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update reconciles set next_time = now()")


async def test_an_attempt_that_runs_here_yet_answers_itself(database: Database) -> None:
    """And what it says of a second attempt that was allowed meanwhile does not count."""
    shop = Workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as old:
        action_id = (await put(old, "work.reconcilable", {}, "k")).action.action_id
        await dispatch(old)
        await shop.began.wait()
        await declare_dead(old)
        await rescue(old.journal)
        await make_due(old)
        await ask(reconciler(old))
        assert ([(1, "still_running", False)], []) == (await asked(old), shop.questions)
        shop.gate.set()
        await until(lambda: not len(old.engine.runs))
        assert S.SUCCEEDED is (await read(old, action_id)).state
        # The late answer looks at nothing beside the action; who asks next puts that right.
        await make_due(old)
        await ask(reconciler(old))
        assert [] == await asked(old)


@pytest.mark.parametrize(("answer", "ended"), [(HERE, S.SUCCEEDED), (AGAIN, S.CANCELLED)])
async def test_a_cancel_while_somebody_is_asked_is_heeded(
    database: Database, answer: object, ended: ActionState
) -> None:
    shop, clock = Bench(), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)
        asking = reconciler(kernel)

        async def find(context: LookupContext) -> Any:
            await cancel_action(kernel.engine, ALICE, action_id, "not wanted")
            return answer

        shop.find = find
        clock.advance(OVER)
        await ask(asking)
        assert S.AMBIGUOUS is (await read(kernel, action_id)).state
        clock.advance(SECOND)
        await ask(asking)
        assert ended is (await read(kernel, action_id)).state
        assert {"queue_ready": [], "queue_delayed": [], "dead_letters": []} == await places(kernel)


async def test_a_persons_verdict_while_somebody_is_asked_stands(database: Database) -> None:
    shop, clock = Bench(), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        action_id = await doubt(kernel)

        async def find(context: LookupContext) -> Any:
            command = ResolveCommand(
                action_id=action_id, finding=resolve.Finding.NOT_DONE, reason="r", evidence="e"
            )
            await resolve_ambiguous(kernel.engine, ALICE, command, capability_of(kernel))
            return HERE

        shop.find = find
        clock.advance(OVER)
        await ask(reconciler(kernel))
        action = await read(kernel, action_id)
        assert (S.FAILED, "r", []) == (action.state, action.message, await asked(kernel))
        with pytest.raises(HandlerFailed):
            await run(kernel, "work.reconcilable_marked", {}, "k")


async def test_two_servers_ask_once_and_one_that_died_asking_is_followed(database: Database) -> None:
    shop, clock = Bench(), FixedClock(START)
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as one,
        open_kernel(database.dsn, shop.app, clock=clock) as two,
    ):
        ids = [await doubt(one, key=f"k{n}") for n in range(3)]
        clock.advance(SECOND)
        gate = asyncio.Event()

        async def find(context: LookupContext) -> Any:
            await gate.wait()
            return HERE

        shop.find = find
        asking = [reconciler(one), reconciler(two)]
        for each in itertools.chain(asking, asking):
            await each.run_once()
        await until(lambda: len(shop.questions) == 3)
        clock.advance(timedelta(seconds=VISIBLE_SECONDS))
        await asking[1].run_once()
        await until(lambda: len(shop.questions) == 6)
        gate.set()
        for each in asking:
            await each.idle()
        for action_id in ids:
            assert ["settled"] == [type_ for type_, _ in await events(one, action_id) if type_ == "settled"]


async def test_a_row_that_is_missing_is_put_in_and_one_too_many_taken_out(database: Database) -> None:
    async with open_kernel(database.dsn, Bench(HERE).app, queue=QUEUE) as kernel:
        action_id = await doubt(kernel)
        members = "tenant, action_id, capability, version, now(), 0, now(), false, now()"
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("delete from reconciles")
        await ask(reconciler(kernel))
        assert S.SUCCEEDED is (await read(kernel, action_id)).state
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(f"insert into reconciles select {members} from actions")
        await ask(reconciler(kernel))
        assert [] == await asked(kernel)


async def test_an_earlier_attempt_that_was_lost_may_act_longer_than_the_last_one(database: Database) -> None:
    clock, app = FixedClock(START), placet.App("slow")
    began = asyncio.Event()

    @app.tool("slow.pay", "idempotent", attempts_max=2, timeout_max=600)
    async def pay(context: Context) -> None:
        if context.attempt > 1:
            raise ConnectionResetError
        began.set()
        await asyncio.Event().wait()

    @app.lookup("slow.pay")
    async def find() -> NotCommitted:
        # Of the last one it is known that it has ended.
        return NotCommitted(retryable=True, not_running=True)

    async with (
        open_kernel(database.dsn, app, clock=clock) as first,
        open_kernel(database.dsn, app, clock=clock) as kernel,
    ):
        ids: list[str] = []
        lost = asyncio.ensure_future(
            run(
                first, "slow.pay", {}, "k", on_admitted=ids.append, timeout_seconds=600, time_left_seconds=600
            )
        )
        await until(began.is_set)
        await declare_dead(first)
        await rescue(kernel.journal)
        clock.advance(6 * SECOND)
        with pytest.raises(EffectAmbiguous):
            await run(kernel, "slow.pay", {}, "k", timeout_seconds=5)
        asking = reconciler(kernel)
        clock.advance(timedelta(seconds=5 + GRACE_SECONDS))
        await ask(asking)
        assert S.AMBIGUOUS is (await read(kernel, ids[0])).state
        undone = ResolveCommand(action_id=ids[0], finding=resolve.Finding.NOT_DONE, reason="r", evidence="e")
        with pytest.raises(StateConflict):
            await resolve_ambiguous(kernel.engine, ALICE, undone, capability_of(kernel))
        clock.advance(timedelta(seconds=600))
        await ask(asking)
        assert S.FAILED is (await read(kernel, ids[0])).state
        lost.cancel()


async def test_nothing_is_believed_undone_that_somebody_it_called_may_still_do(database: Database) -> None:
    ended = NotCommitted(not_running=True)
    shop, clock = Bench(ended, NOT_THERE, NOT_THERE), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        action_id, asking = await doubt(kernel), reconciler(kernel)
        called = (await put(kernel, "work.read", {})).action.action_id
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "insert into lineage values ('acme', $1, 'step', 1, $2, $1, 1, 1, 1)", action_id, called
            )
            # Neither by who knows that the attempt has ended, nor because its time is over.
            for passed in (SECOND, OVER):
                clock.advance(passed)
                await ask(asking)
                assert S.AMBIGUOUS is (await read(kernel, action_id)).state
            await connection.execute("delete from lineage")
        clock.advance(OVER)
        await ask(asking)
        assert ([], S.FAILED) == (shop.answers, (await read(kernel, action_id)).state)
