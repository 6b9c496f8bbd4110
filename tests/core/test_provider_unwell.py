"""A provider that does not answer: a turn is asked for again within its tries, no tool is called again for it, and what
waiting cannot help is told at once.
"""

from dataclasses import replace

import pytest

from placet.agent import ProviderRetry
from placet.testing.model_servers import KEY, Drop, Fail, OpenAIServer, Say, Step, Truncate, call
from placet_server.core.publication.outcome import outcome_of
from placet_server.harness import turn
from placet_server.model.caller import Credential
from placet_server.model.lifecycle import ActionState
from placet_server.model.outcome import EffectState
from placet_server.model.run_errors import AgentUnavailable
from tests.core.agents import ASKED, KEY_VARIABLE, Shop, asked, open_shop, said, spent
from tests.core.kernels import ALICE, output, put, read, states, work_off
from tests.core.parking import again, steps, told
from tests.core.scripted import age
from tests.postgres import Database

COUNT = Say("I count.", call("shop-count", order="A-1"))
DONE = Say("Done.")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setattr(turn, "RETRY_SECONDS_FIRST", 0.0)


@pytest.mark.parametrize("trouble", [Fail(503), Fail(429), Truncate(60), Drop()])
async def test_a_turn_that_fails_is_asked_for_again_and_no_call_is_made_again(
    database: Database, trouble: Step
) -> None:
    shop = Shop()
    script: list[Step] = [COUNT, trouble, DONE]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        assert [1, 2, 2] == [request.turn for request in server.requests]
        assert server.requests[1].body == server.requests[2].body
        assert (ActionState.SUCCEEDED, said("Done.")) == (ended.state, output(ended))
        assert (["A-1"], 1, 1) == (shop.counted, ended.attempt, len(await steps(kernel, ended.action_id)))
        assert (2, 3) == ((counters := await spent(kernel, ended.action_id)).turns, counters.requests)


async def test_a_long_pause_is_waited_for_by_nobody_and_costs_no_attempt(database: Database) -> None:
    shop = Shop()
    script: list[Step] = [Fail(429, retry_after="60"), DONE]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        waiting = await asked(kernel)
        assert (1, ActionState.QUEUED, "POSTPONED") == (len(server.requests), waiting.state, waiting.cause)
        await age(kernel)
        await work_off(kernel)
        ended = await read(kernel, waiting.action_id)
        assert (2, ActionState.SUCCEEDED, 1) == (len(server.requests), ended.state, ended.attempt)
        assert "resumed" in await told(kernel, ended.action_id)


@pytest.mark.parametrize(
    ("tries", "script"),
    [(2, [COUNT, Fail(503), Fail(503), DONE]), (6, [COUNT, Fail(429, retry_after="9999"), DONE])],
)
async def test_spent_tries_end_the_run_and_a_redrive_asks_for_that_turn_again(
    database: Database, tries: int, script: list[Step]
) -> None:
    shop = Shop(provider_retry=ProviderRetry(tries_max=tries))
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        before = len(server.requests)
        assert (ActionState.EXHAUSTED, EffectState.DONE) == (ended.state, ended.effect)
        assert "RETRY_BUDGET" == outcome_of(ended).reason
        assert "" == await again(kernel, ended.action_id)
        await work_off(kernel)
        more = await read(kernel, ended.action_id)
        assert (before + 1, ["A-1"]) == (len(server.requests), shop.counted)
        assert (ActionState.SUCCEEDED, 2) == (more.state, more.generation)


@pytest.mark.parametrize(
    ("status", "code"), [(401, "model_unauthorized"), (400, "model_refused"), (404, "model_refused")]
)
async def test_what_waiting_cannot_help_fails_the_run_with_what_it_has_spent(
    database: Database, status: int, code: str
) -> None:
    shop = Shop()
    async with (
        OpenAIServer([COUNT, Fail(status), DONE]) as server,
        open_shop(database.dsn, shop, server) as kernel,
    ):
        ended = await asked(kernel)
        assert [1, 2] == [request.turn for request in server.requests]
        assert (ActionState.FAILED, code, EffectState.DONE) == (ended.state, ended.failure_code, ended.effect)
        assert KEY not in ended.message
        counters = await spent(kernel, ended.action_id)
        assert (100, 20, 2) == (counters.input_tokens, counters.output_tokens, counters.requests)


async def test_without_its_key_no_run_opens(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    monkeypatch.delenv(KEY_VARIABLE)
    async with OpenAIServer([DONE]) as server, open_shop(database.dsn, shop, server) as kernel:
        with pytest.raises(AgentUnavailable) as refused:
            await asked(kernel)
        assert ("credential_missing", []) == (refused.value.problem, await states(kernel))
        assert not (await kernel.catalog.get_capability("acme", "shop.helper")).served
        monkeypatch.setenv(KEY_VARIABLE, KEY)
        # What is taken away meanwhile.
        action = (await put(kernel, "shop.helper", ASKED, "k")).action
        monkeypatch.delenv(KEY_VARIABLE)
        await work_off(kernel)
        ended = await read(kernel, action.action_id)
        assert (0, "agent_unavailable") == (len(server.requests), ended.failure_code)
        # Whoever sends its key again is told the same.
        assert action.action_id == (await put(kernel, "shop.helper", ASKED, "k")).action.action_id


async def test_the_handle_of_who_asks_is_not_told_a_model(database: Database) -> None:
    """It is for the tools that he has called; with it, a model's provider would get the secret of another."""
    caller = replace(ALICE, credential=Credential(handle="alices-bank"))
    async with OpenAIServer([Say("Done.")]) as server, open_shop(database.dsn, Shop(), server) as kernel:
        action = (await put(kernel, "shop.helper", ASKED, "k", caller=caller)).action
        await work_off(kernel)
        assert ActionState.SUCCEEDED is (await read(kernel, action.action_id)).state
        assert [f"Bearer {KEY}"] == [request.headers["authorization"] for request in server.requests]
