"""Whoever looks at agents sees which of them would lack what, before anybody asks one: in lists, alone, in every way in
which a tool, a delegate or a model can be missing.
"""

from __future__ import annotations

import pytest

import placet
import placet.testing
from placet.v1 import capability_pb2 as pb
from placet_server.model.inline import INPUT_SCHEMA_TEXT

Lacks = dict[str, list[tuple[str, str]]]


def _shop() -> placet.App:
    app = placet.App("shop")

    @app.tool("shop.find", "read")
    async def find() -> None: ...

    app.agent("shop.whole", model="fast", tools=["shop.*"])
    writer = app.agent("shop.writer", model="nowhere")
    app.agent("shop.asking", model="fast", delegates=[writer], tools=["shop.find"])
    app.agent("shop.poor", model="fast", budget=placet.Budget(cost_micros=5), tools=["nothing.*"])
    return app


async def _nothing() -> None: ...


async def _lacks(client: placet.AsyncClient) -> Lacks:
    listed = {each.name: each async for each in client.capabilities(kind="agent")}
    for name, each in listed.items():
        assert each.lacks == (await client.capability(name)).lacks
    return {name: [(lack.problem, lack.name) for lack in each.lacks] for name, each in listed.items()}


async def test_each_thing_that_is_missing_is_named_and_an_agent_that_lacks_nothing_is_not() -> None:
    async with placet.testing.server(_shop(), models={"fast": []}) as server:
        client = server.client()
        found = await _lacks(client)
        assert {
            "placet.agent": [],
            "shop.whole": [],
            "shop.writer": [("model_unknown", "nowhere")],
            "shop.asking": [("delegate_unavailable", "shop.writer")],
            "shop.poor": [("price_unknown", "fast"), ("tool_pattern_empty", "nothing.*")],
        } == found
        served = {each.name: each.served async for each in client.capabilities(kind="agent")}
        assert [True, True, False, True, False] == [
            served[name] for name in ("placet.agent", "shop.whole", "shop.writer", "shop.asking", "shop.poor")
        ]
        # What is no agent lacks nothing: whether it is served says all.
        assert [] == list((await client.capability("shop.find")).lacks)


async def test_a_tool_that_nobody_serves_or_that_goes_away_is_lacked_by_each_agent_that_may_call_it() -> None:
    far, team = placet.App("far"), placet.App("team")
    for name in ("far.look", "far.see"):
        far.tool(name, "read")(_nothing)
    team.agent("team.named", model="fast", tools=["far.look", "shop.find"])
    team.agent("team.covering", model="fast", tools=["far.*"])
    async with placet.testing.server(_shop(), models={"fast": []}) as server:
        client = server.client()
        await client.admit(far, connector="127.0.0.1:9")
        await client.admit(team)
        found = await _lacks(client)
        assert [("tool_unserved", "far.look")] == found["team.named"]
        assert [("tool_unserved", "far.look"), ("tool_unserved", "far.see")] == found["team.covering"]
        await client.withdraw("far.look", reason="gone")
        found = await _lacks(client)
        assert [("tool_unknown", "far.look")] == found["team.named"]
        assert [("tool_unserved", "far.see")] == found["team.covering"]
        await client.withdraw("far.see", reason="gone")
        assert [("tool_pattern_empty", "far.*")] == (await _lacks(client))["team.covering"]
        await client.withdraw("team.named", reason="gone")
        # Nobody asks it any more.
        assert [] == (await _lacks(client))["team.named"]


async def test_what_runs_an_agent_in_no_manifest_is_listed_with_its_contract_where_agents_can_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with placet.testing.server(_shop(), models={"fast": []}) as server:
        client = server.client()
        names = [each.name async for each in client.capabilities(page_size=2)]
        # Page by page each once, in the order of names.
        assert (sorted(set(names)), 1) == (names, names.count("placet.agent"))
        assert not {"placet.catalog.admit", "placet.policy.admit"} & set(names)
        whole = await client.capability("placet.agent")
        listed = [each async for each in client.capabilities("placet.agent")]
        assert [("placet.agent", True, True, False, pb.RISK_HIGH)] == [
            (each.name, each.served, each.current, each.HasField("agent"), each.contract.risk)
            for each in listed
        ]
        assert INPUT_SCHEMA_TEXT == whole.input_schema_json
        monkeypatch.setattr(server.placet.kernel.engine.handlers.programs, "are_here", False)
        assert "placet.agent" not in [each.name async for each in client.capabilities()]
        assert [("extra_missing", "")] == (await _lacks(client))["shop.whole"]
