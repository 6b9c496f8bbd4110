"""What an operator has done at once is what the loops do, whoever else does it too; and its report tells the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.context import Context
from placet_server.core.execution.pause import pause_queue
from placet_server.core.kernel import Kernel
from placet_server.core.recovery.recover import RecoverCommand, Recovery, get_report, list_reports, recover
from placet_server.core.recovery.redrive import Selected
from placet_server.core.recovery.wish import ReconcileCommand, reconcile_now
from placet_server.loops.effect_reconciler import EffectReconciler
from placet_server.model.action import Action
from placet_server.model.errors import NotFound
from placet_server.model.lifecycle import ActionState
from placet_server.model.report import Report, ReportFamily, ReportSection
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    ALICE,
    BOB,
    EVE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    put,
    read,
    states,
    until,
    work_off,
)
from tests.core.receiver import aim, callback, target, tell
from tests.core.workshop import Workshop
from tests.postgres import Database

F = ReportFamily
START = datetime(2030, 1, 1, tzinfo=UTC)


async def done(kernel: Kernel, caller: Any = ALICE, **members: Any) -> Report:
    async def ask_now(actions: Sequence[Action]) -> int:
        return len(actions)

    recovery = Recovery(
        journal=kernel.journal, may_declare_dead=lambda: True, ask_now=ask_now, can_be_asked=lambda _: True
    )
    return await recover(recovery, caller, RecoverCommand(**({"tenant": caller.tenant} | members)))


def section(report: Report, family: ReportFamily) -> ReportSection:
    (found,) = (each for each in report.sections if each.family is family)
    return found


def steps(report: Report, family: ReportFamily) -> list[str]:
    return [entry.next_step for entry in section(report, family).entries]


@pytest.mark.both_servers
async def test_what_a_dead_server_left_is_made_ready_or_ambiguous_once_and_told(database: Database) -> None:
    shop = Workshop()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as old,
        open_kernel(database.dsn, shop.app) as survivor,
    ):
        ids = [(await put(old, f"work.{name}", {}, name)).action.action_id for name in ("read", "unsafe")]
        theirs = (await put(old, "work.unsafe", {}, "k", caller=EVE)).action.action_id
        await dispatch(old)
        await until(lambda: len(shop.attempts) == 3)
        await declare_dead(old)
        looked = await done(survivor, validate_only=True)
        leases = section(looked, F.LEASES)
        assert (2, 0, 0, 2, True) == (
            leases.found,
            leases.replayed,
            leases.ambiguous,
            leases.waiting,
            looked.validate_only,
        )
        assert ["placet recover"] * 2 == steps(looked, F.LEASES)
        assert ["RUNNING", "RUNNING"] == await states(survivor)

        first, second = await asyncio.gather(done(survivor), done(survivor))
        told = max(first, second, key=lambda report: section(report, F.LEASES).found)
        leases = section(told, F.LEASES)
        assert (2, 1, 1, 0, 0) == (
            leases.found,
            leases.replayed,
            leases.ambiguous,
            leases.waiting,
            leases.ended,
        )
        assert ["", f"placet reconcile {ids[1]}"] == steps(told, F.LEASES)
        assert ["QUEUED", "AMBIGUOUS"] == await states(survivor)
        # Whose they are not learns nothing of them, an operator all.
        assert ActionState.AMBIGUOUS is (await read(survivor, theirs, "evil")).state
        assert 1 == section(await done(survivor, EVE), F.AMBIGUOUS).found
        assert 2 == section(await done(survivor, tenant=None), F.AMBIGUOUS).found
        nothing = await done(survivor, families=(F.LEASES,))
        assert [(F.LEASES, 0)] == [(each.family, each.found) for each in nothing.sections]


async def test_each_thing_has_its_next_step_and_what_is_kept_is_what_was_told(database: Database) -> None:
    shop = Workshop(attempts_max=1)

    async def fail(context: Context) -> Any:
        raise ConnectionResetError

    shop.script = fail
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        doubtful = (await put(kernel, "work.reconcilable", {}, "a")).action.action_id
        dead = (await put(kernel, "work.read", {}, "b")).action.action_id
        await work_off(kernel)
        await pause_queue(kernel.journal, ALICE, "default", tenant="acme", reason="the bank is down")
        await put(kernel, "work.read", {}, "c")
        report = await done(kernel, key="once")
        assert [f"placet reconcile {doubtful}"] == steps(report, F.AMBIGUOUS)
        assert [f"placet redrive {dead}"] == steps(report, F.DEAD_LETTERS)
        assert ["placet queues resume default"] == steps(report, F.QUEUES)
        assert 1 == section(report, F.QUEUES).waiting
        # The same request is told the same; another caller's is another.
        assert report == await done(kernel, key="once")
        assert report == await get_report(kernel.journal, "acme", report.report_id)
        other = await done(kernel, BOB, key="once")
        assert [other.without_entries(), report.without_entries()] == await list_reports(
            kernel.journal, "acme", page_size=10
        )
        last = await list_reports(kernel.journal, "acme", page_size=10, before=other.report_id)
        assert [report.without_entries()] == last
        for tenant in ("evil", None):
            assert [] == await list_reports(kernel.journal, tenant, page_size=10)
            with pytest.raises(NotFound):
                await get_report(kernel.journal, tenant, report.report_id)


async def test_who_wants_to_know_has_somebody_asked_also_of_what_was_given_up(database: Database) -> None:
    shop = Workshop(reconcile_automatic=False)

    async def fail(context: Context) -> Any:
        raise ConnectionResetError

    shop.script = fail
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        ids = [
            (await put(kernel, f"work.{name}", {}, name)).action.action_id
            for name in ("reconcilable", "unsafe")
        ]
        await work_off(kernel)
        waiting = (await put(kernel, "work.read", {}, "r")).action.action_id
        asking = EffectReconciler(kernel).reconciler

        def can_be_asked(action: Action) -> bool:
            tool = kernel.engine.handlers.find(action.capability, action.version, action.requester.tenant)
            return tool is None or tool.lookup is not None

        async def wanted(caller: Any = ALICE, **members: Any) -> list[Selected]:
            return await reconcile_now(kernel.journal, caller, ReconcileCommand(**members), can_be_asked)

        async def ask() -> int:
            await asking.run_once()
            await asking.idle()
            return len(shop.questions)

        assert 0 == await ask()
        looked = await wanted(action_ids=(*ids, waiting), validate_only=True)
        assert ["", "no_lookup", "not_ambiguous"] == [each.refused_rule for each in looked]
        assert (0, ["not_found"]) == (
            await ask(),
            [each.refused_rule for each in await wanted(EVE, action_ids=(ids[0],))],
        )
        assert [True, False] == [each.changed for each in await wanted()]
        assert (1, 1) == (await ask(), await ask())
        assert [ids[0]] == [
            e.action_id for e in await wanted(capabilities=("work.reconcilable",), count_max=1)
        ]
        assert 2 == await ask()


async def test_what_others_were_not_told_is_shown_with_what_to_do_and_what_has_no_target_is_given_up(
    database: Database,
) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        aim(kernel, *(target("http://127.0.0.1:1/", name) for name in ("desk", "gone")))
        await tell(kernel, *(callback(number, tenant="acme") for number in range(2)))
        aim(
            kernel,
            target("http://127.0.0.1:1/", "desk"),
            target("http://127.0.0.1:1/", "desk", tenant="evil"),
        )
        await tell(kernel, callback(3, tenant="evil"))
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update deliveries set next_time = now() - interval '2 hours', attempts = 1 "
                "where subject = 'approvals/1'"
            )
        looked = section(await done(kernel, validate_only=True), F.CALLBACKS)
        assert (4, 4, "4 pending, of which 4 are due; 0 dead") == (looked.found, looked.waiting, looked.note)
        acted = await done(kernel)
        assert "3 pending, of which 3 are due; 1 dead" == section(acted, F.CALLBACKS).note
        gone, failing, *others = section(acted, F.CALLBACKS).entries
        dead, pending = callback(1).delivery_id("gone"), callback(1).delivery_id("desk")
        assert (dead, "DEAD", f"placet deliveries redeliver {dead}") == (
            gone.id,
            gone.outcome,
            gone.next_step,
        )
        assert "PLACET_CALLBACK_FILE has none" in gone.what
        assert (pending, f"placet deliveries show {pending}") == (failing.id, failing.next_step)
        assert {("PENDING", "")} == {(each.outcome, each.next_step) for each in others}
        assert 1 == section(await done(kernel, EVE), F.CALLBACKS).found


async def test_a_key_that_was_used_to_look_does_not_keep_anything_from_being_done(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app) as kernel:
        looked = await done(kernel, key="k", validate_only=True)
        acted = await done(kernel, key="k")
        leases = await done(kernel, key="k", families=(F.LEASES, F.QUEUES))
        assert (True, False) == (looked.validate_only, acted.validate_only)
        assert [F.LEASES, F.QUEUES] == [each.family for each in leases.sections]
        again = await done(kernel, key="k", families=(F.QUEUES, F.LEASES))
        assert (leases.report_id, looked.report_id) == (
            again.report_id,
            (await done(kernel, key="k", validate_only=True)).report_id,
        )


async def test_what_was_closed_of_others_is_not_told(database: Database) -> None:
    shop, clock = Workshop(queue_delay_max=60), FixedClock(START)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, clock=clock) as kernel:
        hers = (await put(kernel, "work.read", {}, caller=EVE)).action.action_id
        clock.advance(timedelta(seconds=61))
        found = section(await done(kernel), F.QUEUES)
        assert (0, 0, "") == (found.found, found.ended, found.note)
        assert ActionState.EXHAUSTED is (await read(kernel, hers, "evil")).state
