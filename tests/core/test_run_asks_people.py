"""A run whose call waits for people: it waits with nobody running it, the exact call is made once they have said yes,
and a no is something that the model is told.
"""

import pytest

from placet.testing.model_servers import KEY, OpenAIServer, Say, call
from placet_server.core.publication.waits import with_family_waits
from placet_server.model.lifecycle import ActionState
from tests.core.agents import KEY_VARIABLE, Shop, asked, open_shop, said
from tests.core.kernels import output, read, work_off
from tests.core.parking import parked, steps
from tests.core.people import ANNA, APPROVE, DENY, vote
from tests.postgres import Database

PAY = Say("I pay.", call("shop-pay", order="A-1"), call("shop-count", order="A-2"))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


@pytest.mark.parametrize("verdict", [APPROVE, DENY])
@pytest.mark.parametrize("dies", [False, True])
async def test_people_decide_once_and_the_model_goes_on_after(
    database: Database, verdict: object, dies: bool
) -> None:
    shop = Shop()
    async with OpenAIServer([PAY, Say("Over.")]) as server:
        async with open_shop(database.dsn, shop, server) as kernel:
            waiting = await asked(kernel)
            shown = await with_family_waits(kernel.journal, await parked(kernel, waiting.action_id))
            assert ([1], ["A-2"], []) == ([r.turn for r in server.requests], shop.counted, shop.paid)
            if not dies:
                await vote(kernel, shown.waits[0].approval_id, ANNA, verdict, reason="not to Zed")  # type: ignore[arg-type]
                await work_off(kernel)
        async with open_shop(database.dsn, shop, server) as kernel:
            if dies:
                await vote(kernel, shown.waits[0].approval_id, ANNA, verdict, reason="not to Zed")  # type: ignore[arg-type]
                await work_off(kernel)
            ended = await read(kernel, waiting.action_id)
            assert [1, 2] == [request.turn for request in server.requests]
            assert (ActionState.SUCCEEDED, said("Over."), 1) == (ended.state, output(ended), ended.attempt)
            assert (["A-1"] if verdict is APPROVE else []) == shop.paid
            assert ["A-2"] == shop.counted
            results = [
                each["content"] for each in server.requests[1].json["messages"] if each["role"] == "tool"
            ]
            no = 'Denied: a person said no. Why: "not to Zed". Nothing was done.'
            told = '"paid A-1"' if verdict is APPROVE else no
            assert (2, True) == (len(results), results[0].startswith(told))
            assert 2 == len(await steps(kernel, ended.action_id))


async def test_a_refused_call_is_told_and_the_run_goes_on(database: Database) -> None:
    shop = Shop(tools=["shop.find"])
    script = [Say("", call("shop-count", order="A-1"), call("shop-find", item="A-1")), Say("I cannot.")]
    async with OpenAIServer(script) as server, open_shop(database.dsn, shop, server) as kernel:
        ended = await asked(kernel)
        results = [each["content"] for each in server.requests[1].json["messages"] if each["role"] == "tool"]
        assert "Not run: there is no tool" in results[0]
        assert "Not run: the arguments" in results[1]
        assert 2 == len(results)
        assert (said("I cannot."), [], []) == (
            output(ended),
            shop.counted,
            await steps(kernel, ended.action_id),
        )
