"""A run ends before it passes a bound: nothing of the turn that would is called, and what was spent stays told."""

import pytest

from placet.agent import Budget
from placet.testing.model_servers import KEY, AnthropicServer, OpenAIServer, Say, call
from placet_server.core.publication.outcome import outcome_of
from placet_server.harness import turn
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.run_errors import AgentUnavailable
from placet_server.model.usage import Budget as Bounds
from placet_server.model.usage import Price
from tests.core.agents import KEY_VARIABLE, Shop, asked, open_shop, spent
from tests.core.kernels import output, run
from tests.postgres import Database

ONE = Say("", call("shop-count", order="A-1"))
TWO = Say("", call("shop-count", order="A-2"), call("shop-count", order="A-3"))
SAME = Say("", call("shop-count", order="A-1"))
PRICE = Price(input_micros=1_000_000, output_micros=1_000_000, cached_micros=0)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.mark.parametrize(
    ("budget", "second", "reason", "requests"),
    [
        (Budget(turns=1), TWO, "TURN_BUDGET", 1),
        (Budget(calls=2), TWO, "LOOP_BUDGET", 2),
        (Budget(equal_calls=1), SAME, "LOOP_BUDGET", 2),
        (Budget(tokens=4300), TWO, "SPEND_BUDGET", 1),
        (Budget(cost_micros=4300), TWO, "SPEND_BUDGET", 1),
    ],
)
async def test_a_bound_ends_the_run_before_it_is_passed(
    database: Database, budget: Budget, second: Say, reason: str, requests: int
) -> None:
    shop = Shop(budget=budget)
    script = [ONE, second, Say("Done.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server, price=PRICE) as kernel:
        ended = await asked(kernel)
        assert requests == len(server.requests)
        assert (ActionState.EXHAUSTED, EffectState.DONE, reason) == (
            ended.state,
            ended.effect,
            outcome_of(ended).reason,
        )
        assert ["A-1"] == shop.counted
        counters = await spent(kernel, ended.action_id)
        assert (requests, 120 * requests) == (counters.requests, counters.cost_micros)


async def test_the_servers_bound_holds_where_the_agent_has_none(database: Database) -> None:
    shop = Shop()
    async with (
        OpenAIServer([ONE, TWO, Say("Done.")]) as server,
        open_shop(database.dsn, shop, server, budget_max=Bounds(turns=2)) as kernel,
    ):
        ended = await asked(kernel)
        assert (2, "TURN_BUDGET") == (len(server.requests), outcome_of(ended).reason)


async def test_a_budget_in_money_needs_a_price(database: Database) -> None:
    shop = Shop(budget=Budget(cost_micros=10))
    async with OpenAIServer([Say("Done.")]) as server, open_shop(database.dsn, shop, server) as kernel:
        with pytest.raises(AgentUnavailable) as caught:
            await run(kernel, "shop.helper", {"parts": [{"text": "x"}]}, "k")
        assert (0, "price_unknown") == (len(server.requests), caught.value.problem)


@pytest.mark.parametrize("answers", [3, 2])
async def test_an_answer_without_words_is_asked_for_again_within_its_repairs(
    database: Database, answers: int
) -> None:
    shop = Shop(output_repairs_max=2)
    # It has thought, and said nothing: an answer without any part would be one that was cut off.
    script = [Say("", reasoning="I think.")] * answers + [Say("At last.")]
    async with AnthropicServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        assert 3 == len(server.requests)
        if answers == 3:
            assert (ActionState.FAILED, "output_invalid") == (ended.state, ended.failure_code)
        else:
            assert {"parts": [{"text": "At last."}]} == output(ended)


async def test_an_output_with_a_schema_is_the_call_that_fits_it(database: Database) -> None:
    schema = {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
        "additionalProperties": False,
    }
    # Neither the answer nor the one that was to be repaired is a call.
    shop = Shop(output=schema, budget=Budget(calls=1))
    script = [ONE, Say("", call("final_output", total="x")), Say("", call("final_output", total=3))]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        assert 3 == len(server.requests)
        assert {"total": 3} == output(ended)


async def test_an_answer_that_nobody_can_handle_is_asked_for_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a fault of ours in what it is planned or kept by."""
    monkeypatch.setattr(turn, "plan", lambda *_, **__: 1 / 0)
    async with OpenAIServer([ONE, Say("Done.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        ended = await asked(kernel)
        assert (1, ActionState.FAILED, "model_invalid") == (
            len(server.requests),
            ended.state,
            ended.failure_code,
        )
