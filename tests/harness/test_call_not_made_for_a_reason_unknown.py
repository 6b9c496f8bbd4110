"""Whoever looks at a run sees of each call that is no action why, in a word of the contract and not in a model's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placet_server.core.execution.child import ChildEnd
from placet_server.core.publication.called import Called, called
from placet_server.core.publication.lease import child_id
from placet_server.harness.delegate import record_of
from placet_server.harness.plan import INPUT_BYTES_MAX, plan, plan_of
from placet_server.harness.provider.answer import FINAL_OUTPUT, Answer, ModelCall
from placet_server.model.entry import CALLS_MAX, Answered, CallProblem, EntryType, Opened
from placet_server.model.entry_text import of_text, to_text
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind
from placet_server.model.usage import Budget, Counters
from tests.harness.conversation import LOOKUP, OPENED

RUN = "01890000-0000-7000-8000-000000000001"
GOOD = '{"order":"A-1"}'
P = CallProblem
BARRED = replace(LOOKUP, alias="colleague", name="colleague", delegate=True, barred="Not run: round.")
STRICT = replace(OPENED, output_schema='{"type":"object","required":["n"]}')
Calls = list[tuple[str, str]]


def stored(calls: Calls, opened: Opened, **answer: Any) -> str:
    made = tuple(ModelCall(str(number), *each) for number, each in enumerate(calls))
    said = Answer(text="{}", calls=made, finish="tool_calls", **answer)
    return to_text(plan(said, opened, turn=1, counters=Counters(), equal={}))


def read(text: str) -> Answered:
    answered = of_text(EntryType.ANSWERED, text)
    assert isinstance(answered, Answered)
    return answered


def decided(calls: Calls, opened: Opened, **answer: Any) -> tuple[Called, ...]:
    """As it is told of what is stored."""
    return called(RUN, read(stored(calls, opened, **answer)))


@pytest.mark.parametrize(
    ("calls", "opened", "answer", "problems"),
    [
        ([("orders-lookup", GOOD), ("nothing", "{}")], OPENED, {}, ["", P.TOOL_UNKNOWN]),
        (
            [("orders-lookup", each) for each in ("{", "[1]", '{"a":1e400}', "{}")],
            OPENED,
            {},
            [P.ARGUMENTS_INVALID] * 4,
        ),
        ([("orders-lookup", f'{{"order":"{"x" * INPUT_BYTES_MAX}"}}')], OPENED, {}, [P.ARGUMENTS_TOO_LARGE]),
        ([("orders-lookup", GOOD)] * (CALLS_MAX + 1), OPENED, {}, [*[""] * CALLS_MAX, P.CALLS_TOO_MANY]),
        ([("orders-lookup", GOOD)] * 2, OPENED, {"cut_off": True}, ["", P.CUT_OFF]),
        (
            [("orders-lookup", GOOD), (FINAL_OUTPUT, '{"n":1}')],
            STRICT,
            {},
            [P.ANSWER_FINAL, P.TAKEN_AS_ANSWER],
        ),
        ([(FINAL_OUTPUT, "{}"), ("orders-lookup", GOOD)], STRICT, {}, [P.ARGUMENTS_INVALID, ""]),
        (
            [("orders-lookup", GOOD), ("nothing", "{}"), ("orders-lookup", GOOD)],
            replace(OPENED, budget=Budget(calls=2)),
            {},
            [P.BUDGET_SPENT, P.TOOL_UNKNOWN, P.BUDGET_SPENT],
        ),
        ([("colleague", GOOD)], replace(OPENED, tools=(BARRED,)), {}, [P.DELEGATES_CYCLE]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_each_reason_has_its_word(
    calls: Calls, opened: Opened, answer: dict[str, Any], problems: list[str]
) -> None:
    found = decided(calls, opened, **answer)
    assert problems == [each.problem for each in found]
    assert [not problem for problem in problems] == [bool(each.action_id) for each in found]


def test_what_a_gate_refused_is_known_once_the_model_was_told() -> None:
    answered = read(stored([("orders-lookup", GOOD)] * 2, OPENED))
    step = child_id(RUN, "turn/1/call/1")
    assert [step, child_id(RUN, "turn/1/call/2")] == [each.action_id for each in called(RUN, answered)]
    refused = Outcome(kind=OutcomeKind.REFUSED, reason="POLICY_REFUSED")
    ended = Outcome(
        kind=OutcomeKind.REFUSED, reason="POLICY_REFUSED", action_id=step, effect=EffectState.NOT_DONE
    )
    ends = {1: ChildEnd(ended, None), 2: ChildEnd(refused, None)}
    told = [record_of(each, ends, {}) for each in plan_of(answered, OPENED).calls]
    assert ["", "POLICY_REFUSED"] == [each.reason for each in told]
    # The first one is an action, which says itself why it ended.
    assert [
        Called(1, "orders.lookup", step),
        Called(2, "orders.lookup", "", P.REFUSED.value, "POLICY_REFUSED"),
    ] == list(called(RUN, answered, told))


def test_an_answer_of_a_release_that_did_not_say_it_has_no_word() -> None:
    body = stored([("nothing", "{}")], OPENED)
    before = body.replace(',"problem":"tool_unknown"', "")
    assert before != body
    (told,) = called(RUN, read(before))
    assert Called(1, "nothing", "") == told


def test_what_a_later_release_adds_within_an_entry_is_passed_over() -> None:
    body = stored([("nothing", "{}")], OPENED)
    later = body.replace('"problem":', '"colour":{"deep":["red"]},"problem":')
    assert later != body
    assert read(body) == read(later)
