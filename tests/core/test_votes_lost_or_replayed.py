"""A vote whose answer is lost, whose store stands still, or which is sent again counts once; and what counts is who may
decide when he does, not when he was asked.
"""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from placet_server.core.decision.authority import FileAuthority, people_of
from placet_server.core.decision.decide import DecideCommand, decide
from placet_server.core.decision.view import ApprovalView, Onlooker
from placet_server.core.decision.voter import voter_of
from placet_server.core.execution.cancel_many import Cancelled, cancel_many
from placet_server.core.kernel import Kernel
from placet_server.core.publication.read import get_action
from placet_server.model.caller import Caller
from placet_server.model.decision import ApprovalState, VoteVerdict
from placet_server.model.decision_errors import DecisionConflict, NotEligible
from placet_server.model.errors import StateConflict, StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.model.query import ActionQuery
from placet_server.settings_file import LOOK_SECONDS, SettingsFile
from placet_server.store import approval_move as moves
from tests.core.kernels import ALICE, QUEUE, open_kernel, output, places, put, states, work_off
from tests.core.people import ANNA, APPROVE, BEN, CARL, DENY, ask, capability_of, facts, look, vote
from tests.core.workshop import Workshop
from tests.postgres import Database

ANSWER = VoteVerdict.ANSWER


@pytest.fixture
def shop() -> Workshop:
    shop = Workshop(approval="1 of role:finance")
    shop.gate.set()
    return shop


@pytest.fixture
async def kernel(database: Database, shop: Workshop) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, shop.app, queue=QUEUE, questions=True) as kernel:
        yield kernel


async def test_a_vote_whose_answer_is_lost_counts_once(kernel: Kernel, shop: Workshop) -> None:
    approval_id = await ask(kernel)

    def lose(*_: object) -> None:
        raise StoreUnavailable(detail="the connection was lost after the commit")

    kernel.journal.boundary.hook = lose
    with pytest.raises(StoreUnavailable):
        await vote(kernel, approval_id)
    kernel.journal.boundary.hook = None
    await work_off(kernel)
    again = await vote(kernel, approval_id)
    assert (ApprovalState.GRANTED, 1, 1) == (again.approval.state, len(again.decisions), shop.effects)
    with pytest.raises(DecisionConflict):
        await vote(kernel, approval_id, verdict=DENY)
    assert 1 == (await facts(kernel, again.action.action_id)).count("approval_decided")


async def test_a_store_that_stands_still_in_the_deciding_tx_is_said_to_be_away_and_a_resend_tells_the_truth(
    kernel: Kernel, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval_id = await ask(kernel)
    insert, frozen = moves.insert_decision, []

    async def insert_and_freeze(connection: Any, *arguments: Any) -> None:
        await insert(connection, *arguments)
        frozen.append(connection.get_server_pid())
        os.kill(frozen[0], signal.SIGSTOP)

    monkeypatch.setattr(moves, "insert_decision", insert_and_freeze)
    try:
        with pytest.raises(StoreUnavailable):
            await vote(kernel, approval_id)
    finally:
        os.kill(frozen[0], signal.SIGCONT)
    monkeypatch.undo()
    # What was not committed is undone, and counts for nothing.
    told = await vote(kernel, approval_id)
    assert (ApprovalState.GRANTED, 1) == (told.approval.state, len(told.decisions))
    await work_off(kernel)
    assert (["SUCCEEDED"], 1) == (await states(kernel), shop.effects)


async def test_an_answer_sent_again_after_the_end_is_told_again_and_no_other_one_counts(
    kernel: Kernel,
) -> None:
    asked = (await put(kernel, "human.input", {"title": "Which?", "to": "role:finance"}, "k")).action
    approval_id = asked.approval_id or ""
    await vote(kernel, approval_id, ANNA, ANSWER, answer_json='"A"')
    await work_off(kernel)
    for decision_id in ("anna-1", "another"):
        again = await vote(kernel, approval_id, ANNA, ANSWER, answer_json=' "A" ', decision_id=decision_id)
        assert (ActionState.SUCCEEDED, ["anna-1"]) == (
            again.action.state,
            [each.decision_id for each in again.decisions],
        )
        with pytest.raises(DecisionConflict):
            await vote(kernel, approval_id, ANNA, ANSWER, answer_json='"B"', decision_id=decision_id)
    with pytest.raises(StateConflict):
        await vote(kernel, approval_id, BEN, ANSWER, answer_json='"A"')
    assert "A" == output(await get_action(kernel.journal, ALICE, asked.action_id, full=True))


async def test_who_may_decide_is_asked_when_he_does_and_a_vote_that_was_cast_stays(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("placet_server.settings_file.monotonic", lambda: now[0])
    path = tmp_path / "people.toml"

    path.write_text('[acme.anna]\nroles = ["finance"]')
    people = SettingsFile(path, people_of)
    source = FileAuthority(people)

    def says(text: str) -> None:
        path.write_text(text)
        # One look sees the change, the next one that nobody writes any more.
        for _ in range(2):
            now[0] += LOOK_SECONDS
            people.current()

    async def decides(caller: Caller) -> ApprovalView:
        who = Onlooker(
            tenant="acme", voter=await voter_of(caller, source), sees_sensitive=True, may_decide=True
        )
        command = DecideCommand(
            approval_id=approval_id, digest=digest, verdict=APPROVE, decision_id=caller.subject
        )
        return await decide(kernel.journal, who, command, capability_of(kernel))

    async with open_kernel(database.dsn, Workshop(approval="2 of role:finance").app) as kernel:
        approval_id = await ask(kernel)
        digest = (await look(kernel, approval_id)).approval.digest
        # His token says so, and nobody asks it.
        with pytest.raises(NotEligible):
            await decides(BEN)
        assert ApprovalState.PENDING is (await decides(ANNA)).approval.state
        says('[acme.carl]\nroles = ["finance"]')
        assert ApprovalState.GRANTED is (await decides(CARL)).approval.state


async def test_all_that_waits_is_cancelled_at_once_with_what_was_granted(
    kernel: Kernel, shop: Workshop
) -> None:
    asked = [await ask(kernel, f"k{number}") for number in range(3)]
    await vote(kernel, asked[0])
    found = ActionQuery(capabilities=("work.unsafe",))
    told = await cancel_many(kernel.engine, ALICE, found, "over", validate_only=False)
    assert Cancelled(matched=3, marked=3, ended=3) == told
    for approval_id in asked:
        view = await look(kernel, approval_id)
        assert (ApprovalState.WITHDRAWN, ActionState.CANCELLED) == (view.approval.state, view.action.state)
        ended = await facts(kernel, view.action.action_id)
        assert ["cancel_requested", "approval_ended", "settled"] == ended[-3:]
    assert {"queue_ready": [], "queue_delayed": [], "dead_letters": []} == await places(kernel)
    await work_off(kernel)
    assert 0 == shop.effects
