"""An agent that is said with what it is asked: through the same gates, with no more than who asks may do, and policies
decide by what it may call.
"""

from dataclasses import replace
from typing import Any

import pytest

from placet.testing.model_servers import KEY, OpenAIServer, Say, call
from placet_server.agent_setup import inline_agent
from placet_server.core.kernel import Kernel
from placet_server.model.action import Action
from placet_server.model.errors import PlacetError
from placet_server.model.gate_errors import InputSchemaViolation
from placet_server.model.lifecycle import ActionState
from placet_server.model.policy_errors import PolicyRefused
from placet_server.model.run_errors import AgentUnavailable
from tests.core.agents import KEY_VARIABLE, Shop, open_shop, said
from tests.core.kernels import ALICE, output, put, read, states, work_off
from tests.core.parking import steps
from tests.core.people import ANNA, vote
from tests.core.policies import admit
from tests.postgres import Database

SCRIPT = [Say("", call("shop-find", order="A-1"), call("shop-count", order="A-1")), Say("Over.")]
NOT_WITH_PAY = """
permit (principal, action, resource);
forbid (principal, action == Action::"placet.agent", resource) when { context.input.agent.tools.contains("shop.pay") };
"""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def asking(*tools: str, **agent: Any) -> dict[str, Any]:
    wanted = {"model": "test", "tools": list(tools), "delegates": [], **agent}
    return {"parts": [{"text": "Help me."}], "agent": wanted}


async def asked(kernel: Kernel, value: dict[str, Any], key: str = "k", **options: Any) -> Action:
    action = (await put(kernel, "placet.agent", value, key, **options)).action
    await work_off(kernel)
    return await read(kernel, action.action_id)


async def test_others_say_yes_to_it_first_unless_policies_say_otherwise(database: Database) -> None:
    shop = Shop()
    async with OpenAIServer(SCRIPT) as server, open_shop(database.dsn, shop, server) as kernel:
        waiting = await asked(kernel, asking("shop.find", instructions="Be brief."))
        assert (ActionState.WAITING, 0) == (waiting.state, len(server.requests))
        assert waiting.approval_id is not None
        await vote(kernel, waiting.approval_id, replace(ANNA, roles=("approver",)))
        await work_off(kernel)
        ended = await read(kernel, waiting.action_id)
        assert said("Over.") == output(ended)
        first, second = (request.json["messages"] for request in server.requests)
        assert "Be brief." in first[0]["content"]
        # It may call what was said, and nothing else.
        assert ["shop.find"] == [each.capability for each in await steps(kernel, ended.action_id)]
        assert "there is no tool of this name" in str(second)
        assert [] == shop.counted


async def test_policies_forbid_it_by_what_it_may_call(database: Database) -> None:
    shop = Shop()
    async with OpenAIServer(SCRIPT) as server, open_shop(database.dsn, shop, server) as kernel:
        await admit(kernel, NOT_WITH_PAY)
        with pytest.raises(PolicyRefused):
            await asked(kernel, asking("shop.find", "shop.pay"))
        assert 0 == len(server.requests)
        caller = replace(ALICE, scopes=frozenset({"a"}))
        ended = await asked(kernel, asking("shop.find", "shop.count"), caller=caller)
        assert (said("Over."), ["A-1"]) == (output(ended), shop.counted)
        for child in await steps(kernel, ended.action_id):
            assert (("a",), "placet.agent") == (child.requester.scopes, child.requester.delegation[0].subject)


@pytest.mark.parametrize(
    "agent",
    [
        {"tools": ["shop.*"]},
        {"tools": ["placet.agent"]},
        {"tools": ["placet.policy.admit"]},
        {"delegates": ["placet.agent"]},
        {"model": "https://models.example"},
        {"tools": ["shop.find", "shop.find"]},
        {"credential": "other"},
    ],
)
def test_what_would_leave_policies_a_gap_is_no_input(agent: dict[str, Any]) -> None:
    allowed = inline_agent().compiled_input
    assert not allowed.violations(asking("shop.find"))
    assert allowed.violations(asking("shop.find", **agent))
    assert allowed.violations({"parts": [{"text": "Help me."}]})


@pytest.mark.parametrize(
    ("value", "refusal", "words"),
    [
        (asking(model="nothing"), AgentUnavailable, "nothing"),
        ({**asking(), "budget": {"cost_micros": 5}}, AgentUnavailable, "price"),
        (asking("shop.nothing"), InputSchemaViolation, "there is no shop.nothing"),
        (asking(delegates=["shop.find"]), InputSchemaViolation, "shop.find is no agent"),
        (asking(instructions="For {{whom}}."), InputSchemaViolation, "argument 'whom'"),
    ],
)
async def test_what_could_not_open_is_refused_and_nobody_is_asked_to_say_yes(
    database: Database, value: dict[str, Any], refusal: type[PlacetError], words: str
) -> None:
    async with OpenAIServer(SCRIPT) as server, open_shop(database.dsn, Shop(), server) as kernel:
        with pytest.raises(refusal, match=words) as refused:
            await asked(kernel, value)
        assert refused.value.outcome is not None
        assert (0, []) == (len(server.requests), await states(kernel))
