"""What is told of a run's turns is within the contract's bounds, and no word of what the model was told or said."""

import signal
from typing import Any

import protovalidate
import pytest

from placet_server import kernel_setup
from placet_server.cli.event import _SAY
from placet_server.core.execution.stretch import Stretch
from placet_server.core.publication.watch import watch_action
from placet_server.model.entry import Answered, CallRecord, Compacted, Failed, Requested, TurnProblem
from placet_server.model.entry_text import entry_of
from placet_server.model.usage import Counters, Usage
from placet_server.rpc.convert.event import event_message
from tests.core.kernels import ALICE, QUEUE, open_kernel, put, work_off
from tests.core.scripted import ASKED, Scripted, opened
from tests.postgres import Database

LONG = "x" * 1000
BODIES = (
    opened(),
    Requested(turn=1, messages=('{"secret":"asked"}',)),
    Failed(turn=1, category=TurnProblem.RATE_LIMITED, retry_delay_seconds=1.5, detail="secret"),
    Requested(turn=1, number=2),
    Answered(
        turn=1,
        usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=1),
        finish=LONG,
        calls=(
            *(CallRecord(call=n, id="c", tool=LONG, refusal="secret") for n in range(1, 400)),
            CallRecord(call=400, id="c", tool="t", step="turn/1/call/400", input='{"secret":1}'),
        ),
        messages=('{"secret":"said"}',),
    ),
    Compacted(turn=1, through=5, turns=1, counters=Counters(turns=1), messages=('{"secret":"told"}',)),
)


async def test_every_event_of_a_turn_fits_the_contract_whatever_the_model_says(database: Database) -> None:
    async def program(stretch: Stretch) -> Any:
        await stretch.entries.read()
        await stretch.attempt.chunk("said before")
        for body in BODIES:
            await stretch.entries.append(entry_of(body), Counters(turns=1), seen=[""])
        return {"parts": [{"text": "over"}]}

    script = Scripted()
    script.program = program
    async with open_kernel(database.dsn, script.app, queue=QUEUE, programs=script) as kernel:
        asked = (await put(kernel, "plan.agent", ASKED, "k")).action
        await work_off(kernel)
        events = [event async for event in watch_action(kernel.journal, ALICE, asked.action_id, "")]
    messages = [event_message(event) for event in events]
    for message in messages:
        protovalidate.validate(message)
        kind = message.WhichOneof("event")
        assert kind == "settled" or "secret" not in str(message)
        assert kind in _SAY
    told = [message.WhichOneof("event") for message in messages]
    turn = ["run_opened", "turn_requested", "turn_failed", "turn_requested", "turn_answered", "compacted"]
    assert ["admitted", "attempt_started", "chunk", *turn, "settled"] == told
    answered = messages[told.index("turn_answered")].turn_answered
    assert (256, 3, 1, False) == (
        len(answered.calls),
        answered.usage.input_tokens,
        answered.usage.cached_input_tokens,
        answered.usage.cost_known,
    )
    assert [1.5] == [
        message.turn_failed.retry_delay.ToTimedelta().total_seconds()
        for message in messages
        if message.HasField("turn_failed")
    ]


@pytest.mark.parametrize(
    ("at", "dies_after"),
    [("turn_sent", 1), ("turn_sent:a.b", 2), ("turn_sent:a.b:2", 4), ("turn_sent:none", None)],
)
def test_a_process_is_killed_at_the_boundary_that_is_named(
    monkeypatch: pytest.MonkeyPatch, at: str, dies_after: int | None
) -> None:
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append(number))
    hook = kernel_setup.kill_hook({"PLACET_KILL_AT": at, "PLACET_TEST_BOUNDARIES": "1"})
    assert hook is not None
    reached = [
        ("turn_sent", "other"),
        ("turn_sent", "a.b"),
        ("turn_received", "a.b"),
        ("turn_sent", "a.b"),
        ("parked", "a.b"),
    ]
    after = None
    for count, (name, capability) in enumerate(reached, start=1):
        hook(name, capability)  # type: ignore[arg-type]
        if killed and after is None:
            after = count
    assert (dies_after, [signal.SIGKILL] * (after is not None)) == (after, killed[:1])
    assert None is kernel_setup.kill_hook({"PLACET_KILL_AT": at})
