"""A budget is spent once: no resume, no further try, no lost answer gives any of it back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placet.testing.model_servers import Drop, Fail, Say, Step, call
from placet_server.core.execution.ending import Ended, Exhausted
from placet_server.core.execution.judgement import RETRY_BUDGET
from placet_server.harness.budget import (
    bound_of_calls,
    bound_of_further,
    bound_of_request,
    charge_request,
    credit_answer,
    credit_failure,
    credit_results,
    reserve_for,
    slice_for,
)
from placet_server.harness.transcript import Stage
from placet_server.model.agent import ProviderRetry
from placet_server.model.budget_errors import bound_of
from placet_server.model.entry import Answered, CallRecord, Failed, Requested, Told, TurnProblem
from placet_server.model.usage import Budget, Counters, Price, Reserve, Spent, Usage
from tests.harness.conversation import OPENED, WIRES, Journaled, models_of

PRICE = Price(input_micros=3_000_000, output_micros=15_000_000, cached_micros=300_000)
LOOK = Say("", call("orders-lookup", order="A-1"))
ASKED = Requested(turn=1, tokens=100, micros=7)


@pytest.mark.parametrize("wire", WIRES)
async def test_turns_are_counted_over_resumes_and_tries_are_none(wire: str) -> None:
    script: list[Step] = [LOOK, Fail(503, "0"), LOOK, Fail(429, "0"), LOOK, Say("Done.")]
    for dies in (False, True):
        async with WIRES[wire](script) as server:
            models = models_of(server)
            opened = replace(OPENED, budget=Budget(turns=3))
            run = Journaled(models, opened=opened, dies=dies)
            with pytest.raises(Ended) as ended:
                await run.run("go")
            await models.close()
        assert Exhausted(reason="TURN_BUDGET", cause=bound_of("turns", 3)) == ended.value.ending
        assert (3, 5) == (run.state.counters.turns, run.state.counters.requests)


@pytest.mark.parametrize("wire", WIRES)
async def test_tries_of_a_turn_are_spent_once_whoever_goes_on(wire: str) -> None:
    opened = replace(OPENED, retry=ProviderRetry(tries_max=3))
    async with WIRES[wire]([*[Fail(503)] * 9, Say("Done.")]) as server:
        models = models_of(server)
        run = Journaled(models, opened=opened, dies=True)
        asked = []
        for is_redriven in (False, False, True, False):
            with pytest.raises(Ended) as ended:
                await run.run("go", is_redriven=is_redriven)
            assert isinstance(ended.value.ending, Exhausted)
            assert RETRY_BUDGET == ended.value.ending.reason
            asked.append((run.state.tries, len(server.requests)))
        await models.close()
    assert [(3, 3), (3, 3), (4, 4), (4, 4)] == asked


@pytest.mark.parametrize("wire", WIRES)
async def test_lost_answers_stay_charged_until_no_further_one_can_be_asked_for(wire: str) -> None:
    opened = replace(OPENED, budget=Budget(tokens=10_000), retry=ProviderRetry(tries_max=50))
    async with WIRES[wire]([*[Drop()] * 40, Say("Done.")]) as server:
        models = models_of(server)
        run = Journaled(models, opened=opened, dies=True)
        with pytest.raises(Ended) as ended:
            await run.run("go")
        await models.close()
        assert 2 == len(server.requests)
    assert Exhausted(reason="SPEND_BUDGET", cause=bound_of("tokens", 10_000)) == ended.value.ending
    assert Stage.ASK is run.state.stage


def test_what_is_refused_at_once_is_free_and_what_may_have_been_worked_for_is_not() -> None:
    charged = charge_request(Counters(), ASKED)
    assert (100, 7) == (charged.reserved_tokens, charged.reserved_micros)
    free = Failed(turn=1, category=TurnProblem.RATE_LIMITED)
    assert 0 == credit_failure(charged, ASKED, free).reserved_tokens
    assert charged == credit_failure(charged, ASKED, replace(free, charged=True))


def test_usage_takes_the_place_of_its_own_reserve_alone() -> None:
    twice = charge_request(charge_request(Counters(), ASKED), replace(ASKED, number=2))
    usage = Usage(input_tokens=40, output_tokens=2)
    after = credit_answer(twice, ASKED, Answered(turn=1, usage=usage, cost_micros=5))
    assert (42, 100, 5, 7) == (
        after.input_tokens + after.output_tokens,
        after.reserved_tokens,
        after.cost_micros,
        after.reserved_micros,
    )
    assert 142 == after.tokens


def test_an_answer_whose_usage_nobody_told_costs_its_reserve() -> None:
    charged = charge_request(Counters(), ASKED)
    after = credit_answer(charged, ASKED, Answered(turn=1))
    assert (100, 1) == (after.tokens, after.unpriced)


@pytest.mark.parametrize(
    ("budget", "counters", "name"),
    [
        (Budget(turns=2), Counters(turns=2), "turns"),
        (Budget(tokens=100), Counters(input_tokens=60, reserved_tokens=31), "tokens"),
        (Budget(cost_micros=50), Counters(cost_micros=49), "cost_micros"),
        (Budget(active_ms=1000), Counters(active_ms=1001), "active_ms"),
    ],
)
def test_a_request_that_would_pass_a_bound_is_not_made(budget: Budget, counters: Counters, name: str) -> None:
    spent = bound_of_request(counters, budget, 1, Reserve(10, 2))
    assert spent is not None
    assert name == spent.budget
    assert bound_of_request(counters, Budget(), 1, Reserve(10, 2)) is None


def test_a_further_try_of_the_last_turn_is_no_further_turn() -> None:
    assert bound_of_request(Counters(turns=2), Budget(turns=2), 2, Reserve()) is None


def test_delegates_share_what_is_left_and_give_back_what_they_did_not_spend() -> None:
    budget = Budget(tokens=1000)
    share = slice_for(Counters(input_tokens=200), budget, Budget(tokens=500), 2)
    assert 400 == share.tokens
    record = CallRecord(call=1, id="a", tool="colleague", step="turn/1/call/1", slice=share)
    asked = charge_request(Counters(input_tokens=200), Requested(turn=1))
    answered = credit_answer(
        asked, Requested(turn=1), Answered(turn=1, usage=Usage(input_tokens=1), calls=(record,))
    )
    assert 400 == answered.reserved_tokens
    shares = {1: record.reserve}
    spent = Usage(input_tokens=30, output_tokens=5)
    told = credit_results(answered, shares, [Told(call=1, usage=spent)])
    assert (0, 236) == (told.reserved_tokens, told.tokens)
    assert 400 == credit_results(answered, shares, [Told(call=1)]).reserved_tokens


def test_turns_and_calls_are_shared_and_none_of_them_is_spent_twice() -> None:
    budget = Budget(turns=30, calls=21)
    counters = Counters(turns=3, calls=5)
    shares = [slice_for(counters, budget, Budget(turns=20), count) for count in (1, 2)]
    assert [(20, 16), (13, 8)] == [(share.turns, share.calls) for share in shares]
    told = Told(call=1, turns=13, requests=15, calls=8, usage=Usage())
    after = credit_results(counters, {}, [told, replace(told, call=2)])
    assert (29, 30, 21) == (after.turns, after.requests, after.calls)
    # A question takes a call of who asks, and a turn and a call of who is asked.
    assert None is bound_of_calls(counters, budget, 8, 0, 8)
    assert Spent(budget="calls", bound=21) == bound_of_calls(counters, budget, 9, 0, 9)
    assert Spent(budget="turns", bound=30) == bound_of_calls(Counters(turns=29), budget, 2, 0, 2)
    assert Spent(budget="turns", bound=20) == bound_of_further(Budget(turns=20), Counters(turns=20))
    assert None is bound_of_further(Budget(), Counters(turns=20, calls=20))


def test_a_delegate_that_is_left_nothing_has_a_bound_all_the_same() -> None:
    share = slice_for(Counters(input_tokens=5000), Budget(tokens=1000), Budget(), 1)
    assert 1 == share.tokens


def test_a_price_is_paid_to_the_fraction_and_never_below_it() -> None:
    assert 1 == Price(input_micros=1, output_micros=0, cached_micros=0).cost(Usage(input_tokens=1))
    usage = Usage(input_tokens=1000, output_tokens=100, cached_tokens=400)
    assert 600 * 3 + 120 + 100 * 15 == PRICE.cost(usage)
    assert 0 == PRICE.cost(Usage())


def test_a_reserve_holds_the_longest_answer_and_its_price() -> None:
    assert Reserve(100 + 34 + 50, 134 * 3 + 50 * 15) == reserve_for(100, 100, 50, PRICE)


def test_of_two_budgets_the_tighter_bound_holds() -> None:
    assert Budget(turns=2, calls=5, tokens=7) == Budget(turns=2, tokens=9).tightened(
        Budget(turns=4, calls=5, tokens=7)
    )
