"""A run ends before it passes a bound: nothing of the turn that would is called, and what was spent stays told."""

import base64
from dataclasses import replace

import pytest

from placet.agent import Budget
from placet.testing.model_servers import KEY, AnthropicServer, OpenAIServer, Say, call
from placet_server.core.publication.outcome import outcome_of
from placet_server.core.publication.read import get_action
from placet_server.core.publication.turn import list_turns
from placet_server.core.publication.waits import with_family_waits
from placet_server.harness import turn
from placet_server.harness.budget import PICTURE_TOKENS
from placet_server.harness.provider.adapter import Models
from placet_server.harness.provider.catalogue import ModelEntry
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.run_errors import AgentUnavailable
from placet_server.model.usage import Budget as Bounds
from placet_server.model.usage import Price
from tests.core.agents import KEY_VARIABLE, Shop, asked, open_shop, spent
from tests.core.kernels import ALICE, output, read, run, work_off
from tests.core.parking import parked
from tests.core.people import vote
from tests.core.test_run_replayed import hour_passes
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
        turns = await list_turns(kernel.journal, ended, after=0, page_size=9)
        # Nobody is sent to an action that never was.
        for call in [call for turn in turns.turns for call in turn.calls if call.action_id]:
            await get_action(kernel.journal, ALICE, call.action_id, full=False)


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


async def test_a_budget_in_money_is_by_the_price_that_the_run_was_opened_with(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an operator makes of the file of models meanwhile."""
    shop = Shop(budget=Budget(cost_micros=10_000))
    script = [Say("", call("shop-count", order="A-1"), usage=(3000, 1000)), Say("Done.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server, price=PRICE) as kernel:
        found = Models.find

        def find(models: Models, name: str, *, with_price: bool = False) -> ModelEntry:
            entry = found(models, name, with_price=with_price)
            return replace(entry, price=None) if server.requests else entry

        monkeypatch.setattr(Models, "find", find)
        ended = await asked(kernel)
        assert (1, "SPEND_BUDGET") == (len(server.requests), outcome_of(ended).reason)
        assert 4000 == (await spent(kernel, ended.action_id)).cost_micros


async def test_time_before_a_run_parks_counts(database: Database) -> None:
    shop = Shop(budget=Budget(active_time=1800))
    script = [Say("", call("shop-pay", order="A")), Say("Done.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        waiting = await asked(kernel)
        shown = await with_family_waits(kernel.journal, await parked(kernel, waiting.action_id))
        await hour_passes(kernel)
        await vote(kernel, shown.waits[0].approval_id)
        await work_off(kernel)
        ended = await read(kernel, waiting.action_id)
        assert (1, "SPEND_BUDGET") == (len(server.requests), outcome_of(ended).reason)
        assert (await spent(kernel, waiting.action_id)).active_ms > 3_600_000


async def test_a_picture_is_charged_as_one_however_many_bytes_it_has(database: Database) -> None:
    picture = base64.b64encode(b"\x89PNG" + b"x" * 150_000).decode()
    value = {"parts": [{"text": "What is it?"}, {"binary": {"media_type": "image/png", "data": picture}}]}
    shop = Shop(budget=Budget(tokens=PICTURE_TOKENS + 10_000))
    async with OpenAIServer([Say("A cat.")]) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel, "k", value)
        assert (1, ActionState.SUCCEEDED) == (len(server.requests), ended.state)


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
            assert "The answer was empty" in ended.message
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


async def test_of_an_answer_that_breaks_the_schema_is_told_which_rule_and_no_content(
    database: Database,
) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
    shop = Shop(output=schema, output_repairs_max=0)
    script = [Say("", call("final_output", total="hers"))]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        assert "output_invalid" == ended.failure_code
        assert "/total" in ended.message
        assert "hers" not in ended.message


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
