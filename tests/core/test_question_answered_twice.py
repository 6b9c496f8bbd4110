"""A question waits for one answer that fits, of somebody who may give it, and ends with exactly that."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet.context import Context
from placet_server.core.decision.expire import pass_time
from placet_server.core.decision.policy_explain import explain
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import get_action
from placet_server.model.action import Action
from placet_server.model.caller import Caller, CallerKind, Delegate
from placet_server.model.decision import ApprovalState, VoteVerdict
from placet_server.model.decision_errors import (
    ApprovalDenied,
    ApprovalExpired,
    DecisionConflict,
    InputRequired,
    NotEligible,
)
from placet_server.model.errors import (
    JsonNotInteroperable,
    MalformedJson,
    MalformedRequest,
    StaleDigest,
    StateConflict,
)
from placet_server.model.gate_errors import InputSchemaViolation
from placet_server.model.lifecycle import ActionState
from placet_server.model.policy_errors import PolicyRefused
from placet_server.model.wait import WaitKind
from placet_server.store.clock import FixedClock
from tests.core.kernels import ALICE, QUEUE, dispatch, open_kernel, output, put, run, work_off
from tests.core.people import ANNA, APPROVE, BEN, CARL, DENY, look, take_back, vote
from tests.core.policies import admit
from tests.core.workshop import Workshop
from tests.postgres import Database

ANSWER = VoteVerdict.ANSWER
ASKED: dict[str, Any] = {
    "title": "Which account?",
    "prompt": "Two of them fit.",
    "to": "role:finance",
    "choices": ["A", "B"],
}


async def ask(kernel: Kernel, key: str = "k", **changes: Any) -> Action:
    return (await put(kernel, "human.input", {**ASKED, **changes}, key)).action


async def answer(kernel: Kernel, action: Action, value: Any, caller: Caller = ANNA, **said: Any) -> Any:
    text = value if isinstance(value, bytes) else json.dumps(value)
    said = {"decision_id": f"{caller.subject}-1"} | said
    approval_id = action.approval_id or ""
    return await vote(kernel, approval_id, caller, ANSWER, answer_json=text, **said)


async def state_of(kernel: Kernel, action: Action) -> ActionState:
    return (await get_action(kernel.journal, ALICE, action.action_id, full=True)).state


async def test_whoever_asked_gets_what_was_answered(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE, questions=True) as kernel:
        with pytest.raises(InputRequired) as required:
            await run(kernel, "human.input", ASKED, "k")
        assert required.value.outcome is not None
        (wait,) = required.value.outcome.waits
        assert (WaitKind.INPUT, "Which account?") == (wait.kind, wait.title)
        assert required.value.outcome.reason == "INPUT_REQUIRED"
        action = await ask(kernel)
        seen = await look(kernel, wait.approval_id)
        assert ("Two of them fit.", "") == (seen.approval.summary, seen.problem)
        done = await answer(kernel, action, "B", reason="the other one is closed")
        assert ApprovalState.GRANTED is done.approval.state
        assert ['"B"'] == [decision.answer_json for decision in done.decisions]
        await work_off(kernel)
        ended = await run(kernel, "human.input", ASKED, "k")
        assert (True, "B") == (ended.attached, output(ended.action))


async def test_only_an_answer_that_fits_counts(database: Database) -> None:
    schema = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer", "minimum": 1}}}
    async with open_kernel(database.dsn, Workshop().app, questions=True) as kernel:
        typed = await ask(kernel, answer_schema=schema, choices=[{"sum": 1}, {"sum": 2}])
        for unfit in ({}, {"sum": 0}, {"sum": "1"}, {"sum": 3}, "A"):
            with pytest.raises(InputSchemaViolation):
                await answer(kernel, typed, unfit)
        for broken in (b"{", b'{"sum":1,"sum":2}'):
            with pytest.raises((MalformedJson, JsonNotInteroperable)):
                await answer(kernel, typed, broken)
        with pytest.raises(StaleDigest):
            await answer(kernel, typed, {"sum": 1}, digest="0" * 64)
        assert ApprovalState.GRANTED is (await answer(kernel, typed, {"sum": 1.0})).approval.state
        free = await put(kernel, "human.input", {"title": "Why?", "to": "user:anna"}, "free")
        with pytest.raises(InputSchemaViolation):
            await answer(kernel, free.action, 7)
        assert ApprovalState.GRANTED is (await answer(kernel, free.action, "so")).approval.state


UNASKABLE: list[tuple[dict[str, Any], str]] = [
    ({"to": "finance"}, "/to"),
    ({"to": "2 of role:finance,"}, "/to"),
    ({"to": "2 of user:anna"}, "/to"),
    ({"to": "2 of role:finance"}, "/to"),
    ({"to": "1 of user:anna and 1 of user:ben"}, "/to"),
    ({"ttl": "soon"}, "/ttl"),
    ({"ttl": "400d"}, "/ttl"),
    ({"ttl": "1h", "escalate": "role:head after 2h"}, "/escalate"),
    ({"escalate": "role:head"}, "/escalate"),
    ({"answer_schema": {"type": "texts"}}, "/answer_schema"),
    ({"answer_schema": {"$ref": "https://example.com/x"}}, "/answer_schema"),
    ({"answer_schema": {"type": "integer"}, "choices": [1, "2"]}, "/choices/1"),
    ({"choices": []}, "/choices"),
    ({"title": ""}, "/title"),
    ({"urgent": True}, ""),
]


async def test_a_question_that_cannot_be_asked_is_told_where(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, questions=True) as kernel:
        for changes, field in UNASKABLE:
            with pytest.raises(InputSchemaViolation) as refused:
                await ask(kernel, **changes)
            assert field in [v.field[: len(field)] for v in refused.value.violations], changes


async def test_a_question_that_policies_let_nobody_answer_is_refused_when_it_is_asked(
    database: Database,
) -> None:
    head = '@id("more") @approval("{}") permit (principal, action, resource);'
    async with open_kernel(database.dsn, Workshop().app, questions=True) as kernel:
        for asked, to in (
            ("2 of role:x", "role:finance"),
            ("1 of user:ben", "user:anna"),
            ("1 of role:x", "user:alice"),
        ):
            await admit(kernel, head.format(asked))
            with pytest.raises(PolicyRefused) as refused:
                await ask(kernel, to=to)
            assert ("not_answerable", "more") == (refused.value.problem, refused.value.policies)
            why = await explain(
                kernel.journal.pool, kernel.policies, ALICE, refused.value.refusal_id, with_texts=False
            )
            assert why.verdict is not None
            assert "not_answerable" == why.verdict.problem
        await admit(kernel, head.format("1 of role:legal"))
        both = await ask(kernel)
        await answer(kernel, both, "A", replace(ANNA, roles=("finance", "legal")))


async def test_only_who_is_asked_answers_and_a_question_is_not_approved(database: Database) -> None:
    shop = Workshop(approval="1 of role:finance")
    async with open_kernel(database.dsn, shop.app, questions=True) as kernel:
        action = await ask(kernel)
        for nobody in (
            CARL,
            replace(ANNA, kind=CallerKind.AGENT),
            replace(ANNA, delegation=(Delegate(subject="bot", kind=CallerKind.AGENT),)),
        ):
            with pytest.raises(NotEligible):
                await answer(kernel, action, "A", nobody)
        with pytest.raises(MalformedRequest):
            await vote(kernel, action.approval_id or "", ANNA, APPROVE)
        asked = await put(kernel, "work.unsafe", {"order": "1"}, "approved")
        with pytest.raises(MalformedRequest):
            await answer(kernel, asked.action, "A")
        # Two quorums are one person's only if he is in both.
        both = await ask(kernel, "both", to="1 of role:finance and 1 of role:legal")
        with pytest.raises(NotEligible):
            await answer(kernel, both, "A", ANNA)
        await answer(kernel, both, "A", replace(ANNA, roles=("finance", "legal")))
        # Who asks may know it best.
        own = await ask(kernel, "own", to="user:alice")
        await answer(kernel, own, "B", ALICE)
        # An answer is not taken back: it is handed on.
        with pytest.raises(StateConflict):
            await take_back(kernel, own.approval_id or "", ALICE)


async def test_of_two_answers_at_once_one_counts(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE, questions=True) as kernel:
        action = await ask(kernel)
        told = await asyncio.gather(
            answer(kernel, action, "A", ANNA), answer(kernel, action, "B", BEN), return_exceptions=True
        )
        assert 1 == len([each for each in told if isinstance(each, StateConflict)])
        winner, value = (ANNA, "A") if not isinstance(told[0], Exception) else (BEN, "B")
        again = await answer(kernel, action, value, winner)
        assert 1 == len(again.decisions)
        for decision_id in (f"{winner.subject}-1", "another"):
            with pytest.raises(DecisionConflict):
                await answer(kernel, action, "AB".replace(value, ""), winner, decision_id=decision_id)
        await work_off(kernel)
        assert value == output(await get_action(kernel.journal, ALICE, action.action_id, full=True))


async def test_an_answer_and_a_cancel_make_one_end(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE, questions=True) as kernel:
        for number in range(4):
            action = await ask(kernel, f"k{number}")
            told = await asyncio.gather(
                answer(kernel, action, "A"),
                cancel_action(kernel.engine, ALICE, action.action_id, ""),
                return_exceptions=True,
            )
            assert not isinstance(told[1], Exception)
            await work_off(kernel)
            # What was answered first may still be cancelled before it is told.
            state = await state_of(kernel, action)
            assert state in (ActionState.CANCELLED, ActionState.SUCCEEDED)
            if isinstance(told[0], StateConflict):
                assert ActionState.CANCELLED is state


async def test_who_is_asked_may_say_that_there_is_no_answer(database: Database) -> None:
    async with open_kernel(database.dsn, Workshop().app, queue=QUEUE, questions=True) as kernel:
        action = await ask(kernel)
        await vote(kernel, action.approval_id or "", ANNA, DENY, reason="nobody knows")
        with pytest.raises(StateConflict):
            await answer(kernel, action, "A", BEN)
        with pytest.raises(ApprovalDenied):
            await run(kernel, "human.input", ASKED, "k")


async def test_an_answer_after_the_time_counts_for_nothing(database: Database) -> None:
    clock = FixedClock(datetime.now(UTC))
    async with open_kernel(database.dsn, Workshop().app, clock=clock, questions=True) as kernel:
        late, raced = await ask(kernel, "late", ttl="1h"), await ask(kernel, "raced", ttl="1h")
        clock.advance(timedelta(hours=1))
        with pytest.raises(StateConflict):
            await answer(kernel, late, "A")
        told = await asyncio.gather(
            answer(kernel, raced, "A"), pass_time(kernel.journal), return_exceptions=True
        )
        assert isinstance(told[0], StateConflict)
        await pass_time(kernel.journal)
        for action, key in ((late, "late"), (raced, "raced")):
            assert ActionState.DENIED is await state_of(kernel, action)
            with pytest.raises(ApprovalExpired):
                await run(kernel, "human.input", {**ASKED, "ttl": "1h"}, key)


async def test_a_handler_asks_as_a_step_of_its_work(database: Database) -> None:
    shop = Workshop()

    async def work(context: Context) -> Any:
        return await context.call("account", "human.input", ASKED)

    shop.script = work
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, questions=True) as kernel:
        parent = (await put(kernel, "work.unsafe", {"order": "1"}, "k")).action
        await dispatch(kernel)
        approval_id = ""
        while not approval_id:
            async with kernel.journal.pool.connection() as connection:
                approval_id = await connection.fetchval("select approval_id::text from approvals") or ""
        await vote(kernel, approval_id, ANNA, ANSWER, answer_json='"B"')
        await work_off(kernel)
        ended = await get_action(kernel.journal, ALICE, parent.action_id, full=True)
        assert (ActionState.SUCCEEDED, "B") == (ended.state, output(ended))
