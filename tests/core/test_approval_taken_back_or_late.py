"""A yes that is taken back, or comes too late, lets nothing begin; and what has begun nobody stops by it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from placet_server.core.decision import expire
from placet_server.core.decision.expire import CLAIM_SECONDS, pass_time
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.journal import Journal
from placet_server.core.recovery.recover_approvals import approvals_section
from placet_server.core.recovery.retention import Retention, clean
from placet_server.model.action import Submission
from placet_server.model.decision import ApprovalState
from placet_server.model.decision_errors import ApprovalExpired, ApprovalRevoked, DecisionConflict
from placet_server.model.errors import NotFound, StateConflict, StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store import approval_move as moves
from placet_server.store.approval_move import Due
from placet_server.store.clock import FixedClock
from tests.core.kernels import (
    BOB,
    QUEUE,
    dispatch,
    open_kernel,
    places,
    put,
    read,
    run,
    states,
    until,
    work_off,
)
from tests.core.people import ANNA, BEN, DENY, ask, facts, look, take_back, vote
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)
NOWHERE: dict[str, list[str]] = {"queue_ready": [], "queue_delayed": [], "dead_letters": []}


def workshop(approval: str = "1 of role:finance") -> Workshop:
    shop = Workshop(approval=approval)
    shop.gate.set()
    return shop


async def action_of(kernel: Kernel, approval_id: str) -> str:
    return (await look(kernel, approval_id)).action.action_id


async def test_a_yes_is_taken_back_before_it_is_enough(database: Database) -> None:
    shop = workshop("2 of role:finance")
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        await vote(kernel, approval_id, ANNA)
        for _ in range(2):
            left = await take_back(kernel, approval_id, ANNA)
            assert ("2 of role:finance", ApprovalState.PENDING) == (left.missing, left.approval.state)
        with pytest.raises(DecisionConflict) as caught:
            await vote(kernel, approval_id, ANNA, decision_id="again")
        assert "taken_back" == caught.value.rule
        await vote(kernel, approval_id, BEN)
        assert ["WAITING"] == await states(kernel)
        with pytest.raises(NotFound):
            await take_back(kernel, approval_id, BEN, decision_id="anna-1")


async def test_a_yes_is_taken_back_from_what_was_granted(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        approval_id = await ask(kernel)
        await vote(kernel, approval_id)
        taken = await take_back(kernel, approval_id, reason="wrong order")
        assert ApprovalState.REVOKED is taken.approval.state
        assert NOWHERE == await places(kernel)
        await work_off(kernel)
        with pytest.raises(ApprovalRevoked) as caught:
            await run(kernel, "work.unsafe", {"order": "1"}, "k")
        outcome = caught.value.outcome
        assert outcome is not None
        assert ("wrong order", 0) == (outcome.message, shop.effects)
        told = await facts(kernel, outcome.action_id)
        assert ["approval_decided", "approval_decided", "approval_ended", "settled"] == told[-4:]


async def test_what_has_begun_or_was_denied_is_not_taken_back(database: Database) -> None:
    shop = workshop()
    shop.gate.clear()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        begun, denied = await ask(kernel, "k1"), await ask(kernel, "k2")
        await vote(kernel, begun)
        await vote(kernel, denied, verdict=DENY)
        await dispatch(kernel)
        await shop.began.wait()
        for approval_id, rule in ((begun, "begun"), (denied, "not_open")):
            with pytest.raises(StateConflict) as caught:
                await take_back(kernel, approval_id)
            assert rule == caught.value.rule
        shop.gate.set()
        await until(lambda: not len(kernel.engine.runs))
        assert ["SUCCEEDED", "DENIED"] == await states(kernel)


async def test_a_start_against_a_yes_taken_back_makes_one_of_both(database: Database) -> None:
    shop = workshop()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, shop.app) as other,
    ):
        began = 0
        for number in range(8):
            approval_id = await ask(kernel, f"k{number}")
            await vote(kernel, approval_id)
            await asyncio.gather(work_off(kernel), take_back(other, approval_id), return_exceptions=True)
            view = await look(kernel, approval_id)
            ends = (view.approval.state, view.action.state)
            assert ends in (
                (ApprovalState.GRANTED, ActionState.SUCCEEDED),
                (ApprovalState.REVOKED, ActionState.DENIED),
            )
            began += view.action.state is ActionState.SUCCEEDED
        assert began == shop.effects


async def test_one_that_was_claimed_finds_the_yes_gone_before_its_handler(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        approval_id = await ask(kernel)
        await vote(kernel, approval_id)
        action = await read(kernel, await action_of(kernel, approval_id))
        lease = "0190a0a0-0000-4000-8000-000000000009"
        async with kernel.journal.pool.connection() as connection:
            claimed = await actions.claim(
                connection, action, lease_id=lease, boot_id=kernel.boot_id, timeout_seconds=9.0, now=None
            )
        assert claimed is not None
        taken = await take_back(kernel, approval_id)
        assert (ApprovalState.REVOKED, ActionState.RUNNING) == (taken.approval.state, taken.action.state)
        # Its claim was lost, so it is ready again, and is looked at as it begins.
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update actions set state = 'QUEUED', lease_id = null")
            await connection.execute(
                """insert into queue_ready (tenant, action_id, queue, capability, version, priority, ready_time)
                select tenant, action_id, queue, capability, version, priority, ready_time from actions"""
            )
        await work_off(kernel)
        assert (["DENIED"], 0) == (await states(kernel), shop.effects)


async def test_it_expires_waiting_or_granted_and_no_vote_saves_it(database: Database) -> None:
    shop = workshop("1 of role:finance; ttl=1h")
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        waiting, granted = await ask(kernel, "k1"), await ask(kernel, "k2")
        await vote(kernel, granted)
        clock.advance(timedelta(minutes=59))
        assert (0, False) == ((await pass_time(kernel.journal)).expired, False)
        clock.advance(timedelta(minutes=1))
        with pytest.raises(StateConflict) as caught:
            await vote(kernel, waiting)
        assert "EXPIRED" == caught.value.state
        assert 2 == (await pass_time(kernel.journal)).expired
        assert 0 == (await pass_time(kernel.journal)).expired
        for key, approval_id in (("k1", waiting), ("k2", granted)):
            assert ApprovalState.EXPIRED is (await look(kernel, approval_id)).approval.state
            with pytest.raises(ApprovalExpired):
                await run(kernel, "work.unsafe", {"order": "1"}, key)
        assert NOWHERE == await places(kernel)
        await work_off(kernel)
        assert 0 == shop.effects


async def test_what_is_to_run_later_does_not_run_at_once_because_people_said_yes(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        later = Submission(delay_seconds=600.0)
        action = (await put(kernel, "work.unsafe", {"order": "1"}, "k", place=later)).action
        await vote(kernel, action.approval_id or "")
        await work_off(kernel)
        assert [action.action_id] == (await places(kernel))["queue_delayed"]
        assert (["QUEUED"], 0) == (await states(kernel), shop.effects)


async def test_expiry_against_a_vote_makes_one_end(database: Database) -> None:
    shop = workshop("1 of role:finance; ttl=1h")
    # Of two servers at the same moment: one still before the end, one after it.
    before, after = FixedClock(START), FixedClock(START + timedelta(hours=1))
    async with (
        open_kernel(database.dsn, shop.app, clock=before, queue=QUEUE) as kernel,
        open_kernel(database.dsn, shop.app, clock=after) as other,
    ):
        for number in range(6):
            approval_id = await ask(kernel, f"k{number}")
            await asyncio.gather(vote(kernel, approval_id), pass_time(other.journal), return_exceptions=True)
            # Who was claimed while the vote was counted is looked at once the claim is over.
            after.advance(timedelta(seconds=CLAIM_SECONDS))
            await pass_time(other.journal)
            view = await look(kernel, approval_id)
            assert (ApprovalState.EXPIRED, ActionState.DENIED) == (view.approval.state, view.action.state)


async def test_what_is_due_is_shared_and_what_a_dead_server_had_is_done_by_others(database: Database) -> None:
    shop = workshop("1 of role:finance; ttl=1h")
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        for number in range(3):
            await ask(kernel, f"k{number}")
        now = clock.advance(timedelta(hours=1))
        async with kernel.journal.pool.connection() as connection:
            claimed = await moves.claim_due(connection, count_max=2, seconds=CLAIM_SECONDS, now=now)
        assert 2 == len(claimed)
        assert [1, 0] == [(await pass_time(kernel.journal)).expired for _ in range(2)]
        clock.advance(timedelta(seconds=CLAIM_SECONDS))
        assert 2 == (await pass_time(kernel.journal)).expired
        assert ["DENIED"] * 3 == await states(kernel)


async def test_one_that_somebody_holds_keeps_no_other_from_expiring(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop("1 of role:finance; ttl=1h")
    clock = FixedClock(START)
    look_at = expire._look_at

    async def look_at_what_is_free(journal: Journal, due: Due) -> str:
        if due.approval_id == held:
            raise StoreUnavailable(detail="its action is locked")
        return await look_at(journal, due)

    monkeypatch.setattr(expire, "_look_at", look_at_what_is_free)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        held, *_ = [await ask(kernel, f"k{number}") for number in range(3)]
        clock.advance(timedelta(hours=1))
        assert 2 == (await pass_time(kernel.journal)).expired
        held = ""
        clock.advance(timedelta(seconds=CLAIM_SECONDS))
        assert 1 == (await pass_time(kernel.journal)).expired


async def test_a_report_tells_what_is_open_and_ends_what_is_late(database: Database) -> None:
    shop = workshop("1 of role:finance; ttl=1h")
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        late, granted = await ask(kernel, "k1"), await ask(kernel, "k2")
        await vote(kernel, granted)
        async with kernel.journal.pool.connection() as connection:
            later = "expire_time = expire_time + interval '9 hours', next_time = null"
            sql = f"update approvals set {later} where approval_id = $1"
            await connection.execute(sql, granted)
        clock.advance(timedelta(hours=2))
        for validate_only, ended, states_ in ((True, 0, "PENDING"), (False, 1, "EXPIRED")):
            section = await approvals_section(
                kernel.journal, "acme", validate_only=validate_only, entries_max=100
            )
            assert (2, 2 - ended, ended) == (section.found, section.waiting, section.ended)
            assert [(late, states_), (granted, "GRANTED")] == [(e.id, e.outcome) for e in section.entries]
        nobody = await approvals_section(kernel.journal, "evil", validate_only=True, entries_max=100)
        assert (0, ()) == (nobody.found, nobody.entries)


async def test_more_people_are_told_once(database: Database) -> None:
    shop = workshop("1 of role:finance; ttl=4h; escalate=role:head after 1h")
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        approval_id = await ask(kernel)
        clock.advance(timedelta(hours=1))
        assert 1 == (await pass_time(kernel.journal)).escalated
        assert 0 == (await pass_time(kernel.journal)).escalated
        told = (await look(kernel, approval_id)).approval
        assert (True, ApprovalState.PENDING) == (told.escalated, told.state)
        clock.advance(timedelta(hours=3))
        assert 1 == (await pass_time(kernel.journal)).expired


async def test_a_cancel_whose_asker_died_is_finished_by_the_loop(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        action_id = await action_of(kernel, approval_id)
        async with kernel.journal.pool.connection() as connection:
            await actions.request_cancel(
                connection, tenant="acme", action_id=action_id, event_body="{}", now=None
            )
        with pytest.raises(StateConflict) as caught:
            await vote(kernel, approval_id)
        assert "cancel_requested" == caught.value.rule
        await pass_time(kernel.journal)
        assert ["CANCELLED"] == await states(kernel)
        assert ApprovalState.WITHDRAWN is (await look(kernel, approval_id)).approval.state


async def test_approvals_and_votes_go_with_their_action(database: Database) -> None:
    shop = workshop()
    clock = FixedClock(START)
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        gone, kept = await ask(kernel, "k1"), await ask(kernel, "k2")
        await vote(kernel, gone, verdict=DENY)
        await vote(kernel, kept)
        clock.advance(timedelta(days=400))
        kept_for = Retention(ended=timedelta(days=1), dead_letter=None)
        while (await clean(kernel.journal, kept_for)).has_more:
            pass
        with pytest.raises(NotFound):
            await look(kernel, gone)
        assert ApprovalState.GRANTED is (await look(kernel, kept)).approval.state
        async with kernel.journal.pool.connection() as connection:
            assert 1 == await connection.fetchval("select count(*) from approval_decisions")
        await cancel_action(kernel.engine, BOB, await action_of(kernel, kept), "")
