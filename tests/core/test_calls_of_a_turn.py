"""The calls of one turn begin together and each has one end, whatever becomes of the others."""

from typing import Any

import pytest

from placet_server.core.execution import child
from placet_server.core.execution.child import ChildEnd, StepCall
from placet_server.core.execution.stretch import Stretch
from placet_server.core.kernel import Kernel
from placet_server.core.publication.waits import with_family_waits
from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import OutcomeKind
from tests.core.kernels import QUEUE, open_kernel, put, read, work_off
from tests.core.parking import parked
from tests.core.people import DENY, vote
from tests.core.scripted import ASKED, Scripted
from tests.postgres import Database

OVER = {"parts": [{"text": "over"}]}


def call(step: str, capability: str, **members: Any) -> StepCall:
    return StepCall(step=step, capability=capability, input_json='{"order":"A-1"}', **members)


async def ended(kernel: Kernel) -> Action:
    asked = (await put(kernel, "plan.agent", ASKED, "k")).action
    await work_off(kernel)
    return await read(kernel, asked.action_id)


async def test_a_call_that_is_refused_or_fails_keeps_no_other_from_its_end(database: Database) -> None:
    told: list[int] = []
    found: list[list[ChildEnd]] = []

    async def program(stretch: Stretch) -> Any:
        wanted = [
            call("turn/1/call/1", "plan.quick"),
            call("turn/1/call/2", "plan.nothing"),
            call("turn/1/call/3", "plan.find", version="7"),
            StepCall(step="turn/1/call/4", capability="plan.find", input_json='{"other":1}'),
            call("turn/1/call/5", "plan.find"),
        ]
        found.append(await stretch.call_all(wanted, lambda index, end: told.append(index)))
        return OVER

    script = Scripted()
    script.program = program
    async with open_kernel(
        database.dsn, script.app, queue=QUEUE, programs=script, boundary_hook=script.reached
    ) as kernel:
        run = await ended(kernel)
    (ends,) = found
    kinds = [end.outcome.kind for end in ends]
    assert ActionState.SUCCEEDED == run.state
    assert [OutcomeKind.SUCCEEDED, *[OutcomeKind.REFUSED] * 3, OutcomeKind.SUCCEEDED] == kinds
    reasons = [end.outcome.reason for end in ends]
    assert [
        None,
        "CAPABILITY_NOT_FOUND",
        "CAPABILITY_NOT_FOUND",
        "INPUT_SCHEMA_VIOLATION",
        None,
    ] == reasons
    assert ['"done A-1"', None, None, None, '"found A-1"'] == [end.output_json for end in ends]
    assert [0, 1, 2, 3, 4] == sorted(told)
    assert [("calls_admitted", 1)] == [each for each in script.log if each[0] == "calls_admitted"]


async def test_a_no_of_people_is_the_end_of_one_call(database: Database) -> None:
    found: list[list[ChildEnd]] = []

    async def program(stretch: Stretch) -> Any:
        wanted = [call("turn/1/call/1", "plan.paid"), call("turn/1/call/2", "plan.quick")]
        found.append(await stretch.call_all(wanted))
        return OVER

    script = Scripted()
    script.program = program
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        waiting = await parked(kernel, (await ended(kernel)).action_id)
        shown = await with_family_waits(kernel.journal, waiting)
        await vote(kernel, shown.waits[0].approval_id, verdict=DENY)
        await work_off(kernel)
        assert ActionState.SUCCEEDED == (await read(kernel, waiting.action_id)).state
    (ends,) = found
    assert [OutcomeKind.DENIED, OutcomeKind.SUCCEEDED] == [end.outcome.kind for end in ends]
    assert ([], ["A-1"]) == (script.paid, script.done)


@pytest.mark.parametrize("step", ["", "/1", "turn/", "turn//1", "turn/1#2", "a/" * 40 + "a", "turn/1\n"])
def test_a_step_that_cannot_be_is_called_by_nobody(step: str) -> None:
    assert child.PROGRAM_STEP.fullmatch(step) is None


async def test_a_version_that_is_not_what_was_meant_is_not_called(database: Database) -> None:
    found: list[ChildEnd] = []

    async def program(stretch: Stretch) -> Any:
        known = await kernel.catalog.find("acme", "plan.find")
        for step, digest in (("turn/1/call/1", "00" * 32), ("turn/1/call/2", known.contract_digest)):
            found.extend(await stretch.call_all([call(step, "plan.find", contract_digest=digest)]))
        return OVER

    script = Scripted()
    script.program = program
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        await ended(kernel)
    assert ["CONTRACT_VIOLATION", None] == [end.outcome.reason for end in found]


async def test_how_many_calls_there_may_be_is_counted_by_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "CHILDREN_MAX", 2)
    found: list[ChildEnd] = []

    async def program(stretch: Stretch) -> Any:
        for turn, calls in ((1, 2), (2, 3)):
            wanted = [call(f"turn/{turn}/call/{n}", "plan.find") for n in range(1, calls + 1)]
            found.extend(await stretch.call_all(wanted))
        return OVER

    script = Scripted()
    script.program = program
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        await ended(kernel)
    assert [None, None, None, None, "CHILD_LIMIT"] == [end.outcome.reason for end in found]
