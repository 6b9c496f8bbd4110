"""Each call of an answer has exactly one result, whatever the model wrote: a provider refuses a conversation in which
one has none, or two. The scripted servers do, too.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from placet.failure import Failure
from placet.testing.model_servers import Call, Say, call
from placet_server.core.execution.child import ChildEnd, StepCall
from placet_server.harness.alias import alias_of
from placet_server.harness.plan import (
    BOUND_IS_SPENT,
    FINISHED,
    NOT_RUN,
    Plan,
    PlannedCall,
    plan,
    plan_of,
)
from placet_server.harness.provider.answer import FINAL_OUTPUT, Answer, ModelCall
from placet_server.harness.result import RESULTS_BYTES_MAX, render, results_of
from placet_server.harness.transcript import Stage
from placet_server.model.entry import CALLS_MAX, Answered, Opened, PinnedTool
from placet_server.model.gate_errors import HandlerNotFound
from placet_server.model.outcome import EffectState, Outcome, OutcomeKind
from placet_server.model.usage import Budget, Counters
from tests.harness.conversation import ALL_WIRES, LOOKUP, OPENED, REFUND, WIRES, Journaled, ended, models_of

COLLEAGUE = replace(LOOKUP, alias="colleague", name="colleague", delegate=True)
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
GOOD = '{"order":"A-1"}'


def decided(*calls: ModelCall, opened: Opened = OPENED, **answer: Any) -> Answered:
    made = Answer(text="{}", calls=calls, finish="tool_calls", **answer)
    return plan(made, opened, turn=1, counters=Counters(), equal={})


@pytest.mark.parametrize("wire", ALL_WIRES)
async def test_a_provider_takes_the_results_of_whatever_was_called(wire: str) -> None:
    calls = [
        call("orders-lookup", order="A-1"),
        call("orders-lookup", order="A-1"),
        call("no-such-tool", a=1),
        Call("functions.orders-lookup", '{"order": "A-1"}'),
        Call("x" * 70, "{}"),
        Call("orders-lookup", ""),
        Call("orders-lookup", "[1]"),
        Call("orders-lookup", '{"order": "A-'),
        Call("orders-lookup", '{"order": "A-1", "order": "A-2"}'),
        Call("orders-lookup", '{"order": 1e400}'),
        Call("orders-lookup", '{"order": NaN}'),
        Call("orders-lookup", '{"order": "\\ud800"}'),
        Call("orders-lookup", '{"order": ' + "[" * 1200 + "]" * 1200 + "}"),
        Call("orders-lookup", '{"order": "A-1"}', id="same"),
        Call("orders-lookup", '{"order": "A-1"}', id="same"),
        Call("orders-lookup", '{"order": "A-1"}', id="same-2"),
        Call("final_output", "{}"),
    ]
    made: list[str] = []

    def tool(called: StepCall) -> ChildEnd:
        made.append(called.step)
        return ended()

    async with ALL_WIRES[wire]([Say("", *calls), Say("Done.")]) as server:
        models = models_of(server)
        run = Journaled(models, tool=tool, dies=True)
        await run.run("go")
        await models.close()
        assert 2 == len(server.requests)
    assert Stage.DONE is run.state.stage
    assert [f"turn/1/call/{number}" for number in (1, 2, 14, 15, 16)] == made


def test_equal_delegations_of_one_answer_are_one_and_equal_calls_of_a_tool_are_many() -> None:
    opened = replace(OPENED, tools=(LOOKUP, COLLEAGUE))
    answered = decided(
        ModelCall("a", "colleague", GOOD),
        ModelCall("b", "colleague", '{ "order" : "A-1" }'),
        ModelCall("c", "colleague", '{"order":"A-2"}'),
        ModelCall("d", "orders-lookup", GOOD),
        ModelCall("e", "orders-lookup", GOOD),
        opened=opened,
    )
    planned = plan_of(answered, opened)
    assert [1, 3, 4, 5] == [each.call for each in planned.steps]
    ends = {1: ended(output='{"said":1}'), 3: ended(), 4: ended(), 5: ended(OutcomeKind.CANCELLED)}
    results = results_of(planned, ends, sees_sensitive=True)
    assert ["a", "b", "c", "d", "e"] == [each.id for each in results]
    assert results[0].text == results[1].text == '{"said":1}'


def test_nothing_is_told_of_a_turn_that_is_not_over() -> None:
    planned = plan_of(decided(ModelCall("a", "orders-lookup", GOOD)), OPENED)
    with pytest.raises(KeyError):
        results_of(planned, {}, sees_sensitive=True)


def test_calls_beyond_the_bound_of_one_answer_are_told_so() -> None:
    answered = decided(*(ModelCall(str(n), "orders-lookup", GOOD) for n in range(CALLS_MAX + 2)))
    assert [True] * CALLS_MAX + [False] * 2 == [bool(each.step) for each in answered.calls]
    assert CALLS_MAX + 2 == len(
        results_of(Plan(turn=1, calls=plan_of(answered, OPENED).calls), _all(answered), sees_sensitive=True)
    )


def test_arguments_reach_a_tool_in_their_one_form_and_only_if_they_fit() -> None:
    answered = decided(
        ModelCall("a", "orders-lookup", '{"order" : "\\u00e9"}'), ModelCall("b", "payments-refund", GOOD)
    )
    assert ['{"order":"é"}', ""] == [each.input for each in answered.calls]
    assert "amount" in answered.calls[1].refusal


def test_a_final_answer_ends_the_run_and_what_else_was_called_is_told_so() -> None:
    opened = replace(OPENED, output_schema=SCHEMA)
    answered = decided(
        ModelCall("a", "orders-lookup", GOOD), ModelCall("b", FINAL_OUTPUT, '{ "n" : 1 }'), opened=opened
    )
    assert '{"n":1}' == answered.output
    assert [NOT_RUN, FINISHED] == [each.refusal for each in answered.calls]
    assert () == plan_of(answered, opened).steps


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_that_breaks_the_schema_is_repaired_so_often_and_then_the_run_is_invalid(
    wire: str,
) -> None:
    opened = replace(OPENED, output_schema=SCHEMA, output_repairs_max=2)
    good = Say("", Call(FINAL_OUTPUT, '{"n":1}'))
    bad = [Say("", Call(FINAL_OUTPUT, '{"n":"x"}')), Say("In words.")]
    ends = []
    for said in ([*bad, good], [*bad, bad[0], good]):
        async with WIRES[wire](said) as server:
            models = models_of(server)
            run = Journaled(models, opened=opened, dies=True)
            try:
                end = await run.run("count")
            except Failure as failure:
                end = failure.code
            await models.close()
            ends.append((run.state.stage, end, len(server.requests)))
    assert [(Stage.DONE, '{"n":1}', 3), (Stage.INVALID, "output_invalid", 3)] == ends


def test_no_kind_of_ending_is_told_as_another() -> None:
    planned = PlannedCall(call=1, provider_id="a", tool=LOOKUP, alias=LOOKUP.alias, step="turn/1/call/1")
    told = {
        kind: render(
            planned,
            ended(kind, reason="SOME_REASON", failure_code="no_stock", message="None left."),
            sees_sensitive=True,
        )
        for kind in OutcomeKind
    }
    assert len(OutcomeKind) == len({part.text for part in told.values()})
    assert [OutcomeKind.SUCCEEDED] == [kind for kind, part in told.items() if part.outcome == "success"]
    assert [OutcomeKind.DENIED] == [kind for kind, part in told.items() if part.outcome == "denied"]
    assert "no_stock" in told[OutcomeKind.FAILED].text
    for kind in (OutcomeKind.AMBIGUOUS, OutcomeKind.PENDING, OutcomeKind.WAITING):
        assert "Do not repeat it" in told[kind].text


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.CANCELLED, OutcomeKind.EXHAUSTED])
def test_an_effect_that_happened_or_may_have_is_told_with_whatever_ended(kind: OutcomeKind) -> None:
    planned = PlannedCall(call=1, provider_id="a", tool=REFUND, alias=REFUND.alias, step="turn/1/call/1")
    texts = [render(planned, ended(kind, effect=effect), sees_sensitive=True).text for effect in EffectState]
    assert len(EffectState) == len(set(texts))
    assert "not known" in render(planned, ended(kind, effect=EffectState.UNKNOWN), sees_sensitive=True).text


def test_what_a_model_is_told_has_no_ids_of_ours() -> None:
    planned = PlannedCall(call=1, provider_id="a", tool=LOOKUP, alias=LOOKUP.alias, step="turn/1/call/1")
    for kind in OutcomeKind:
        end = ChildEnd(Outcome(kind=kind, action_id="0199-this", reason="R", message="m"), '{"ok":true}')
        assert "0199-this" not in render(planned, end, sees_sensitive=True).text


def test_a_model_is_not_told_how_to_start_a_server() -> None:
    planned = PlannedCall(call=1, provider_id="a", tool=LOOKUP, alias=LOOKUP.alias, step="turn/1/call/1")
    missing = HandlerNotFound(capability="orders.lookup", version="1")
    refused = Outcome(kind=OutcomeKind.REFUSED, reason=missing.reason, message=missing.text())
    text = render(planned, ChildEnd(refused), sees_sensitive=True).text
    assert ("Nothing can run it now" in text, "start it" in text) == (True, False)


def test_results_that_are_too_large_together_are_told_by_their_size() -> None:
    answered = decided(*(ModelCall(str(n), "orders-lookup", GOOD) for n in range(3)))
    large = json.dumps("x" * (RESULTS_BYTES_MAX // 2))
    ends = {1: ended(output=large), 2: ended(output=large), 3: ended()}
    parts = results_of(plan_of(answered, OPENED), ends, sees_sensitive=True)
    assert sum(len(part.text) for part in parts) < RESULTS_BYTES_MAX
    few = results_of(plan_of(answered, OPENED), ends, sees_sensitive=True, bytes_max=9999)
    assert 9999 > sum(len(part.text) for part in few)
    assert ["success", "success", '{"ok":true}'] == [parts[0].outcome, parts[1].outcome, parts[2].text]
    assert large == results_of(plan_of(answered, OPENED), {**ends, 2: ended()}, sees_sensitive=True)[0].text


def test_aliases_are_what_providers_allow_and_never_the_same() -> None:
    names = ["orders.lookup", "orders_lookup", FINAL_OUTPUT, "a" * 64, "a" * 65, "a" * 66, "a." * 40 + "b"]
    aliases = [alias_of(name) for name in names]
    assert "orders-lookup" == aliases[0]
    assert len(names) == len({*aliases, FINAL_OUTPUT} - {FINAL_OUTPUT})
    assert all(len(alias) <= 64 and alias.replace("-", "").replace("_", "").isalnum() for alias in aliases)


def test_calls_that_would_pass_a_bound_end_the_run_before_any_of_them() -> None:
    calls = [ModelCall(str(n), "orders-lookup", GOOD) for n in range(3)]
    for budget, name in ((Budget(calls=2), "calls"), (Budget(equal_calls=2), "equal_calls")):
        answered = decided(*calls, opened=replace(OPENED, budget=budget))
        assert answered.spent is not None
        assert (name, 2, "LOOP_BUDGET") == (
            answered.spent.budget,
            answered.spent.bound,
            answered.spent.reason,
        )
        assert [("", BOUND_IS_SPENT)] * 3 == [(call.step, call.refusal) for call in answered.calls]
        assert decided(*calls[:2], opened=replace(OPENED, budget=budget)).spent is None


def test_a_tool_without_a_schema_takes_any_object() -> None:
    free = PinnedTool(alias="free", name="free", version="1", contract_digest="02")
    opened = replace(OPENED, tools=(free,))
    answered = decided(ModelCall("a", "free", ""), ModelCall("b", "free", "1"), opened=opened)
    assert ["{}", ""] == [each.input for each in answered.calls]


def _all(answered: Answered) -> dict[int, ChildEnd]:
    return {each.call: ended() for each in answered.calls if each.step}
