"""The local model plans over the real tools of the sample shop, the same way every time, and under its own name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from placet.failure import Failure
from placet.sample.shop import app
from placet.testing import FakeContext, FakeSyncContext
from placet_server.core.execution.child import ChildEnd, StepCall
from placet_server.harness.alias import alias_of
from placet_server.harness.local_model import DEEDS, Line, plan_turn
from placet_server.harness.provider.adapter import Models
from placet_server.harness.provider.catalogue import LOCAL_MODEL, Catalogue, of_names
from placet_server.harness.provider.credential import Credentials
from placet_server.harness.transcript import Stage
from placet_server.model.entry import Opened, PinnedTool
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind
from tests.harness.conversation import Journaled, Tool, ended

NAME = f"local:{LOCAL_MODEL}"
TOOLS = tuple(
    PinnedTool(
        alias=alias_of(tool.name),
        name=tool.name,
        version=tool.version,
        contract_digest="00",
        input_schema=tool.capability.input_schema_json,
        description=tool.capability.presentation.description,
    )
    for tool in sorted(app.tools, key=lambda tool: tool.name)
)


def models() -> Models:
    known: Catalogue = of_names([NAME])
    return Models(lambda: known, lambda: Credentials({}))


def shop(made: list[str]) -> Tool:
    """Runs the tool itself; its input was checked against its schema."""

    def run(called: StepCall) -> ChildEnd:
        made.append(f"{called.capability} {called.input_json}")
        tool = next(each for each in app.tools if each.name == called.capability)
        try:
            if tool.is_async:
                # In a loop of its own: the run's stands still meanwhile.
                output = _apart(tool.call(FakeContext(), called.input_json))
            else:
                output = tool.call(FakeSyncContext(), called.input_json)
        except Failure as failure:
            return ChildEnd(
                Outcome(
                    kind=OutcomeKind.FAILED,
                    failure_code=failure.code,
                    message=failure.message,
                    effect=EffectState.NOT_DONE,
                )
            )
        return ended(output=json.dumps(output))

    return run


def _apart(coroutine: Any) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


async def asked(
    wish: str, tool: Tool, tools: tuple[PinnedTool, ...] = TOOLS, *, dies: bool = True
) -> Journaled:
    opened = Opened(spec_digest="00", model=NAME, tools=tools)
    run = Journaled(models(), opened=opened, tool=tool, dies=dies)
    await run.run(wish)
    assert Stage.DONE is run.state.stage
    return run


def said(run: Journaled) -> str:
    return " ".join(part["text"] for part in json.loads(run.state.output or "")["parts"])


@pytest.mark.parametrize(
    ("wish", "calls", "end"),
    [
        (
            "Please refund A-1001",
            ["orders.lookup", 'payments.refund {"amount":"19.90","order":"A-1001"}'],
            "Refunded 19.90 for A-1001.",
        ),
        (
            "refund 5 EUR of A-1002",
            ["orders.lookup", 'payments.refund {"amount":"5.00","order":"A-1002"}'],
            "Refunded 5.00 for A-1002.",
        ),
        (
            "Give 12,50 as goodwill for A-1003",
            ["orders.lookup", 'payments.goodwill {"amount_cents":1250,"order":"A-1003"}'],
            "12.50 for A-1003.",
        ),
        (
            "charge $7.5 for A-1003",
            ["orders.lookup", 'payments.charge {"amount":"7.50","order":"A-1003"}'],
            "Charged 7.50 for A-1003.",
        ),
        ("Where is order A-1002?", ["orders.lookup"], "A-1002 of bob@example.com over 240.00 is shipped."),
        (
            "refund A-1001 and A-1003, and tell the customer",
            ["orders.lookup", "orders.lookup", "payments.refund", "payments.refund", "messages.send"],
            "Wrote to alice@example.com.",
        ),
        (
            'message bob@example.com "on its way" about A-1002',
            ["orders.lookup", 'messages.send {"text":"on its way","to":"bob@example.com"}'],
            "Wrote to bob@example.com.",
        ),
        ("refund Z-9", ["orders.lookup"], "no_such_order"),
        ("refund something", [], "Which order"),
        ("hello", [], "I can look up orders"),
    ],
)
async def test_a_wish_becomes_calls_of_the_shop_and_what_came_of_them(
    wish: str, calls: list[str], end: str
) -> None:
    made: list[str] = []
    run = await asked(wish, shop(made))
    assert len(calls) == len(made)
    assert all(each.startswith(wanted) for each, wanted in zip(made, calls, strict=True)), made
    assert end in said(run)


async def test_the_same_wish_is_the_same_run_to_the_byte_whatever_is_forgotten() -> None:
    wish = "refund A-1001 and A-1003 and notify the customer"
    fixed = {"payments.refund": '{"amount":"1.00"}', "messages.send": '{"message":"msg"}'}

    def tool(called: StepCall) -> ChildEnd:
        if called.capability in fixed:
            return ended(output=fixed[called.capability])
        return shop([])(called)

    runs = [await asked(wish, tool, dies=dies) for dies in (True, False, True)]
    assert 1 == len({tuple(row.body for row in run.rows) for run in runs})


async def test_it_says_in_every_message_that_it_is_the_local_model() -> None:
    run = await asked("refund A-1001", shop([]))
    messages = [json.loads(message) for message in run.state.messages()]
    names = [message["model_name"] for message in messages if message["kind"] == "response"]
    assert [LOCAL_MODEL] * 3 == names


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.SUCCEEDED])
async def test_what_did_not_succeed_is_told_as_such_and_never_tried_again(kind: OutcomeKind) -> None:
    made: list[str] = []

    def tool(called: StepCall) -> ChildEnd:
        if called.capability == "payments.refund":
            made.append(called.step)
            return ended(kind, message="So it is.")
        return shop([])(called)

    run = await asked("refund A-1001 and write to the customer", tool)
    assert 1 == len(made)
    assert "Refunded" not in said(run)
    assert "The refund of A-1001:" in said(run)
    assert "Nobody was written to." in said(run)


async def test_it_does_not_promise_what_it_has_no_tool_for() -> None:
    lookup = tuple(tool for tool in TOOLS if tool.name == "orders.lookup")
    run = await asked("refund A-1001", shop([]), lookup)
    assert "I have no tool for a refund." in said(run)
    assert "none of its tools" in said(await asked("refund A-1001", shop([]), ()))


def test_a_wish_that_names_no_order_is_about_the_ones_last_named() -> None:
    lines = [
        Line(role="user", text="where is A-1001?"),
        Line(role="call", tool="orders-lookup", text='{"order":"A-1001"}', id="1"),
        Line(role="result", text='{"order":"A-1001"}', id="1", is_success=True),
        Line(role="user", text="refund it"),
    ]
    turn = plan_turn(lines, frozenset({"orders-lookup", "payments-refund"}))
    assert [("orders-lookup", {"order": "A-1001"})] == [tuple(call) for call in turn.calls]


@pytest.mark.parametrize(
    "text", ["", "A-1001", "refund", "\x00", "refund A-1001 " * 500, "{}", "A-" + "9" * 50]
)
def test_it_has_something_to_say_to_everything(text: str) -> None:
    tools = frozenset({"orders-lookup", *(deed.tool for deed in DEEDS)})
    for lines in ([Line(role="user", text=text)], [Line(role="result", id="?", text=text)], []):
        assert plan_turn(lines, tools).text
