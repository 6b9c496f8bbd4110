"""What people have to say yes to waits, runs after that as it was shown, and not otherwise."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from placet.app import App
from placet.context import Context
from placet.failure import Failure
from placet_server.core.admission.resume import resume
from placet_server.core.decision.view import view_of
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.publication.promote import promote
from placet_server.core.publication.read import get_action
from placet_server.model.action import OnWait
from placet_server.model.caller import Caller, CallerKind, Delegate
from placet_server.model.decision import ApprovalState
from placet_server.model.decision_errors import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalRequired,
    DecisionConflict,
    NotEligible,
)
from placet_server.model.ending_errors import HandlerFailed
from placet_server.model.errors import MalformedRequest, NotFound, StaleDigest, StateConflict, WaitExpired
from placet_server.model.gate_errors import IdempotencyConflict
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import OutcomeKind, RetryAdvice
from placet_server.rpc.convert.decision import approval_message
from tests.core.kernels import (
    ALICE,
    BOB,
    EVE,
    QUEUE,
    dispatch,
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
from tests.core.people import (
    ALICE_OF_FINANCE,
    ANNA,
    APPROVE,
    BEN,
    CARL,
    DENY,
    ask,
    facts,
    look,
    onlooker,
    vote,
)
from tests.core.workshop import Workshop
from tests.postgres import Database


def workshop(approval: str = "1 of role:finance") -> Workshop:
    shop = Workshop(approval=approval)
    shop.gate.set()
    return shop


async def test_it_waits_and_runs_once_people_said_yes(database: Database) -> None:
    shop = workshop("2 of role:finance")
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        with pytest.raises(ApprovalRequired) as caught:
            await run(kernel, "work.unsafe", {"order": "1"}, "k")
        outcome = caught.value.outcome
        assert outcome is not None
        (wait,) = outcome.waits
        assert (OutcomeKind.WAITING, RetryAdvice.AFTER_WAIT) == (outcome.kind, outcome.retry_advice)
        assert (wait.action_id, wait.approval_id) == (outcome.action_id, caught.value.approval_id)
        await dispatch(kernel)
        assert ["WAITING"] == await states(kernel)
        first = await vote(kernel, wait.approval_id, ANNA)
        assert (ApprovalState.PENDING, "1 of role:finance") == (first.approval.state, first.missing)
        assert ["WAITING"] == await states(kernel)
        second = await vote(kernel, wait.approval_id, BEN)
        assert (ApprovalState.GRANTED, "") == (second.approval.state, second.missing)
        assert [wait.action_id] == (await places(kernel))["queue_ready"]
        await work_off(kernel)
        done = await run(kernel, "work.unsafe", {"order": "1"}, "k")
        assert done.attached
        assert 1 == shop.effects
        told = ["admitted", "waiting", "approval_decided", "approval_decided", "attempt_started", "settled"]
        assert told == await facts(kernel, wait.action_id)


async def test_any_server_runs_it_though_the_one_that_counted_the_vote_is_gone(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
    async with open_kernel(database.dsn, shop.app) as kernel:
        await vote(kernel, approval_id)
        assert ["QUEUED"] == await states(kernel)
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        await work_off(kernel)
        assert ["SUCCEEDED"] == await states(kernel)


async def test_it_is_consumed_once_and_covers_every_attempt(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        calls = 0

        async def script(context: Context) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise Failure("busy", "", category="temporary", effect="not_done", retry_delay=0.0)

        shop.script = script
        with pytest.raises(ApprovalRequired) as caught:
            await run(kernel, "work.idempotent_marked", {"order": "1"}, "k")
        await vote(kernel, caught.value.approval_id)
        await dispatch(kernel)
        await until(lambda: not len(kernel.engine.runs))
        consumed = (await look(kernel, caught.value.approval_id)).approval
        assert consumed.consume_time_us is not None
        # What expires or would be taken back after the start changes nothing.
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("update approvals set expire_time = now() - interval '1 day'")
            await connection.execute("update actions set ready_time = now()")
            await connection.execute("update queue_delayed set ready_time = now()")
        await promote(kernel.journal)
        await work_off(kernel)
        assert (["SUCCEEDED"], 2) == (await states(kernel), calls)
        again = (await look(kernel, caught.value.approval_id)).approval
        assert consumed.consume_time_us == again.consume_time_us


async def test_what_expired_before_it_began_does_not_begin(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        for number, attach in enumerate((False, True)):
            approval_id = await ask(kernel, f"k{number}")
            await vote(kernel, approval_id)
            async with kernel.journal.pool.connection() as connection:
                await connection.execute("update approvals set expire_time = now()")
            if attach:
                with pytest.raises(ApprovalExpired):
                    await run(kernel, "work.unsafe", {"order": "1"}, f"k{number}")
            else:
                await work_off(kernel)
        assert (["DENIED", "DENIED"], 0) == (await states(kernel), shop.effects)


async def test_one_no_ends_it_and_it_never_runs(database: Database) -> None:
    shop = workshop("2 of role:finance")
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        approval_id = await ask(kernel)
        await vote(kernel, approval_id, ANNA)
        denied = await vote(kernel, approval_id, BEN, DENY, reason="too much")
        assert ApprovalState.DENIED is denied.approval.state
        await work_off(kernel)
        with pytest.raises(ApprovalDenied) as caught:
            await run(kernel, "work.unsafe", {"order": "1"}, "k")
        outcome = caught.value.outcome
        assert outcome is not None
        assert (OutcomeKind.DENIED, RetryAdvice.NEW_KEY) == (outcome.kind, outcome.retry_advice)
        assert ("too much", "NOT_DONE") == (outcome.message, outcome.effect)
        assert 0 == shop.effects
        with pytest.raises(StateConflict):
            await vote(kernel, approval_id, CARL)
        with pytest.raises(DecisionConflict):
            await vote(
                kernel, approval_id, BEN, DENY, reason="too much", suggested_input_json='{"order":"2"}'
            )
        assert ["admitted", "waiting", "approval_decided", "approval_decided", "settled"] == await facts(
            kernel, outcome.action_id
        )


async def test_a_vote_is_bound_to_what_its_voter_has_seen(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        one = await ask(kernel)
        with pytest.raises(ApprovalRequired) as caught:
            await run(kernel, "work.unsafe", {"order": "2"}, "other")
        two = caught.value.approval_id
        digest = (await look(kernel, one)).approval.digest
        with pytest.raises(StaleDigest):
            await vote(kernel, two, digest=digest)
        assert '{"order":"1"}' == (await look(kernel, one)).input_json
        # The same key with other bytes is another request, and is refused as ever.
        with pytest.raises(IdempotencyConflict):
            await run(kernel, "work.unsafe", {"order": "2"}, "k")
        await vote(kernel, one)
        assert ["QUEUED", "WAITING"] == await states(kernel)


@pytest.mark.parametrize("by_whom", ["queue", "resume"])
async def test_the_bytes_that_were_shown_run_and_no_others(database: Database, by_whom: str) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        approval_id = await ask(kernel)
        await vote(kernel, approval_id)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("""update actions set input = '{"order":"9"}'""")
        action_id = (await look(kernel, approval_id)).action.action_id
        if by_whom == "queue":
            await work_off(kernel)
        else:
            with pytest.raises(HandlerFailed):
                await resume(kernel, ALICE, action_id, 10.0)
        action = await get_action(kernel.journal, ALICE, action_id, full=True)
        assert ("FAILED", "input_altered", 0) == (action.state, action.failure_code, shop.effects)


@pytest.mark.parametrize(
    ("voter", "problem"),
    [
        (ALICE_OF_FINANCE, "requester"),
        (CARL, "not_selected"),
        (replace(ANNA, kind=CallerKind.AGENT), "not_a_person"),
        (replace(ANNA, delegation=(Delegate(subject="bot"),)), "not_a_person"),
    ],
)
async def test_who_may_not_decide_is_told_so_before_and_after(
    database: Database, voter: Caller, problem: str
) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        seen = await look(kernel, approval_id, voter)
        assert problem == seen.problem
        for verdict in (APPROVE, DENY):
            with pytest.raises(NotEligible, match="may not decide") as caught:
                await vote(kernel, approval_id, voter, verdict)
            assert problem == caught.value.problem
        assert ["WAITING"] == await states(kernel)


async def test_who_acts_for_the_requester_is_no_second_person(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        asked = replace(ALICE, delegation=(Delegate(subject="anna", kind=CallerKind.USER),))
        approval_id = await ask(kernel, caller=asked)
        with pytest.raises(NotEligible) as caught:
            await vote(kernel, approval_id, ANNA)
        assert "requester" == caught.value.problem


async def test_another_tenant_finds_nothing(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        digest = (await look(kernel, approval_id)).approval.digest
        eve = replace(EVE, roles=("finance",))
        with pytest.raises(NotFound):
            await look(kernel, approval_id, eve)
        with pytest.raises(NotFound):
            await vote(kernel, approval_id, eve, digest=digest)
        assert ["WAITING"] == await states(kernel)


async def test_a_decision_counts_once_and_never_means_two_things(database: Database) -> None:
    shop = workshop("2 of role:finance")
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        for _ in range(2):
            told = await vote(kernel, approval_id, ANNA, decision_id="d", reason="fine")
            assert 1 == len(told.decisions)
        # Another id says nothing new; other content, or another word of the same person, is refused.
        assert 1 == len((await vote(kernel, approval_id, ANNA, decision_id="e")).decisions)
        said: list[tuple[Any, dict[str, Any], str]] = [
            (ANNA, {"decision_id": "d", "reason": "else"}, "other_content"),
            (ANNA, {"decision_id": "d", "reason": "fine", "ticket": "OPS-1"}, "other_content"),
            (ANNA, {"decision_id": "d", "reason": "fine", "attachments": ("a",)}, "other_content"),
            (BEN, {"decision_id": "d", "reason": "fine"}, "other_content"),
            (ANNA, {"decision_id": "f", "reason": "fine", "verdict": DENY}, "voted_otherwise"),
        ]
        for caller, words, rule in said:
            with pytest.raises(DecisionConflict) as caught:
                await vote(kernel, approval_id, caller, **words)
            assert rule == caught.value.rule
        assert ["WAITING"] == await states(kernel)
        await vote(kernel, approval_id, BEN, decision_id="g")
        # A resend that comes late is told how it stands now.
        late = await vote(kernel, approval_id, ANNA, decision_id="d", reason="fine")
        assert ApprovalState.GRANTED is late.approval.state


async def test_evidence_that_the_terms_ask_for_is_asked_of_a_yes(database: Database) -> None:
    shop = workshop("1 of role:finance; evidence=reason,ticket,attachment")
    asked_for = ["reason", "evidence.ticket", "evidence.attachments"]
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        for nothing in ("  ", "\u200b\u2060\u202e"):
            with pytest.raises(MalformedRequest) as caught:
                await vote(kernel, approval_id, reason=nothing, attachments=(nothing,))
            assert asked_for == [v.field for v in caught.value.violations]
        with pytest.raises(MalformedRequest):
            await vote(kernel, approval_id, reason="fine", ticket="OPS-1")
        await vote(kernel, approval_id, reason="fine", ticket="OPS-1", attachments=("https://scan",))
        assert ["QUEUED"] == await states(kernel)


async def test_two_votes_at_once_both_count(database: Database) -> None:
    shop = workshop("2 of role:finance")
    async with (
        open_kernel(database.dsn, shop.app) as kernel,
        open_kernel(database.dsn, shop.app) as other,
    ):
        for number in range(5):
            approval_id = await ask(kernel, f"k{number}")
            await asyncio.gather(vote(kernel, approval_id, ANNA), vote(other, approval_id, BEN))
            assert ApprovalState.GRANTED is (await look(kernel, approval_id)).approval.state


async def test_yes_against_no_makes_one_of_both(database: Database) -> None:
    shop = workshop()
    async with (
        open_kernel(database.dsn, shop.app) as kernel,
        open_kernel(database.dsn, shop.app) as other,
    ):
        for number in range(5):
            approval_id = await ask(kernel, f"k{number}")
            ends = await asyncio.gather(
                vote(kernel, approval_id, ANNA),
                vote(other, approval_id, BEN, DENY),
                return_exceptions=True,
            )
            assert 1 == sum(isinstance(end, StateConflict) for end in ends)
            view = await look(kernel, approval_id)
            assert (view.approval.state, view.action.state) in (
                (ApprovalState.GRANTED, ActionState.QUEUED),
                (ApprovalState.DENIED, ActionState.DENIED),
            )
            assert 1 == len(view.decisions)


async def test_a_cancel_ends_what_waits_and_nobody_need_decide(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        for decided in (False, True):
            approval_id = await ask(kernel, f"k{decided}")
            action_id = (await look(kernel, approval_id)).action.action_id
            if decided:
                await vote(kernel, approval_id)
            action = await cancel_action(kernel.engine, BOB, action_id, "")
            assert ActionState.CANCELLED is action.state
            assert ApprovalState.WITHDRAWN is (await look(kernel, approval_id)).approval.state
            assert ["cancel_requested", "approval_ended", "settled"] == (await facts(kernel, action_id))[-3:]
            with pytest.raises(StateConflict):
                await vote(kernel, approval_id, BEN)
        assert {"queue_ready": [], "queue_delayed": [], "dead_letters": []} == await places(kernel)
        await work_off(kernel)
        assert 0 == shop.effects


async def test_vote_against_cancel_makes_one_end(database: Database) -> None:
    shop = workshop()
    async with (
        open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel,
        open_kernel(database.dsn, shop.app) as other,
    ):
        for number in range(5):
            approval_id = await ask(kernel, f"k{number}")
            action_id = (await look(kernel, approval_id)).action.action_id
            await asyncio.gather(
                vote(kernel, approval_id),
                cancel_action(other.engine, BOB, action_id, ""),
                return_exceptions=True,
            )
            assert ActionState.CANCELLED is (await read(kernel, action_id)).state
            assert ApprovalState.WITHDRAWN is (await look(kernel, approval_id)).approval.state
        await work_off(kernel)
        assert 0 == shop.effects


async def test_the_same_key_attaches_to_what_waits(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE) as kernel:
        approval_id = await ask(kernel)
        assert approval_id == await ask(kernel)
        submitted = await put(kernel, "work.unsafe", {"order": "1"}, "k")
        assert submitted.attached
        assert approval_id == submitted.action.waits[0].approval_id
        returned = await run(kernel, "work.unsafe", {"order": "1"}, "k", on_wait=OnWait.RETURN)
        assert (ActionState.WAITING, True) == (returned.action.state, returned.attached)
        with pytest.raises(WaitExpired) as caught:
            await run(kernel, "work.unsafe", {"order": "1"}, "k", on_wait=OnWait.HOLD, time_left_seconds=0.1)
        outcome = caught.value.outcome
        assert outcome is not None
        assert (OutcomeKind.PENDING, 1) == (outcome.kind, len(outcome.waits))
        held = asyncio.ensure_future(run(kernel, "work.unsafe", {"order": "1"}, "k", on_wait=OnWait.HOLD))
        await vote(kernel, approval_id)
        assert {"order": "1"} == output((await held).action)
        assert 1 == shop.effects


async def test_losing_the_caller_cancels_nothing_that_waits(database: Database) -> None:
    shop = workshop()
    async with open_kernel(database.dsn, shop.app) as kernel:
        held = asyncio.ensure_future(
            run(kernel, "work.unsafe", {"order": "1"}, "k", on_wait=OnWait.HOLD, time_left_seconds=None)
        )
        approval_id = await ask(kernel)
        held.cancel()
        await asyncio.wait([held])
        assert ApprovalState.PENDING is (await look(kernel, approval_id)).approval.state


async def test_a_sensitive_member_is_hidden_whatever_its_name_and_whoever_tells_it(
    database: Database,
) -> None:
    app = App("clinic")

    @app.tool(
        "clinic.treat",
        "idempotent",
        input_schema={"type": "object"},
        key_fields=("in/out",),
        sensitive=("/in~1out", "/name"),
        approval="1 of role:finance",
    )
    async def treat(value: Any) -> None:
        pass

    async with open_kernel(database.dsn, app) as kernel:
        with pytest.raises(ApprovalRequired) as caught:
            await run(kernel, "clinic.treat", {"in/out": "secret", "name": "secret"}, "k")
        approval_id = caught.value.approval_id
        suggested = '{"in/out":"secret","name":"secret","room":1}'
        await vote(kernel, approval_id, verdict=DENY, suggested_input_json=suggested)
        seen = await look(kernel, approval_id, sees_sensitive=False)
        (no,) = seen.decisions
        assert '{"in/out":null,"name":null,"room":1}' == no.suggested_input_json
        assert "secret" not in str(approval_message(seen))
        (no,) = (await look(kernel, approval_id)).decisions
        assert suggested == no.suggested_input_json


async def test_what_is_sensitive_is_shown_to_nobody_without_the_scope(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance; material=/order", sensitive=("/order",))
    async with open_kernel(database.dsn, shop.app) as kernel:
        approval_id = await ask(kernel)
        seen = await look(kernel, approval_id, sees_sensitive=False)
        assert ('{"order":null}', ("/order",)) == (seen.input_json, seen.hidden_paths)
        assert "material_path_hidden" == seen.problem
        assert '{"order":"1"}' == (await look(kernel, approval_id)).input_json

        async def gone(_: object) -> None:
            return None

        # Of what the catalogue does not have any more nobody knows what is sensitive.
        who = await onlooker(ANNA, sees_sensitive=False)
        seen = await view_of(kernel.journal, who, approval_id, gone)
        assert ("null", ("",)) == (seen.input_json, seen.hidden_paths)
        with pytest.raises(NotEligible) as caught:
            await vote(kernel, approval_id, sees_sensitive=False)
        assert "material_path_hidden" == caught.value.problem
