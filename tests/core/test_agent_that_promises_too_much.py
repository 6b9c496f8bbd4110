"""An agent that cannot run as it says is refused where it is admitted, every problem by its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from placet_server.core.admission.manifest import Known, check_manifest
from placet_server.core.admission.manifest_agent import Around
from placet_server.model.agent import (
    AgentSpec,
    DelegateChoice,
    Memory,
    ModelSettings,
    ProviderRetry,
    ToolChoice,
    arguments_in,
    by_name,
    choice_for,
)
from placet_server.model.ask import INPUT_SCHEMA_TEXT
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.contract import EffectClass, Reconcile, contract_for
from placet_server.model.manifest import Manifest, Problem
from placet_server.model.policy_schema import schema_of, schema_problems
from placet_server.model.usage import Budget

COMPOSED = contract_for(EffectClass.COMPOSED)
FIND = Capability(name="orders.find", version="1", contract=contract_for(EffectClass.READ))
SPEC = AgentSpec(model="openai:gpt-5", tools=(ToolChoice(name="orders.find"),))


def agent(name: str = "support.helper", spec: AgentSpec | None = SPEC, **changes: Any) -> Capability:
    made = Capability(
        name=name,
        version="1",
        kind=CapabilityKind.AGENT,
        input_schema=INPUT_SCHEMA_TEXT,
        contract=replace(COMPOSED, cancellable=True),
        agent=spec,
    )
    return replace(made, **changes)


def asking(*names: str, **changes: Any) -> AgentSpec:
    return AgentSpec(model="fast", delegates=tuple(DelegateChoice(agent=each) for each in names), **changes)


def problems(*capabilities: Capability, around: Around | None = None) -> list[Problem]:
    known = Known(digests={}, owners={}, around=around or Around())
    manifest = Manifest(name="shop", version="1", capabilities=capabilities)
    # Of nobody's handlers: an agent has none.
    return check_manifest(manifest, known=known, handlers=None)


def found(problems: Iterable[Problem]) -> list[tuple[str, str]]:
    return [(each.path, each.code) for each in problems]


def test_an_agent_that_says_no_more_than_its_model_is_admitted() -> None:
    assert [] == problems(agent(spec=AgentSpec(model="fast")))
    assert [] == problems(agent(), FIND)
    asks_people = replace(SPEC, tools=(ToolChoice(name="human.input"), ToolChoice(name="orders.*")))
    assert [] == problems(FIND, agent(spec=asks_people))


@pytest.mark.parametrize(
    ("capability", "path", "code"),
    [
        (agent(spec=None), "agent", "agent_missing"),
        (replace(FIND, agent=SPEC), "agent", "agent_unexpected"),
        (agent(contract=contract_for(EffectClass.READ)), "contract.effect", "agent_not_composed"),
        (agent(input_schema=""), "input_schema_json", "agent_input_schema"),
        (agent(input_schema='{"type":"object"}'), "input_schema_json", "agent_input_schema"),
        (agent(output_schema="{}"), "output_schema_json", "agent_output_schema"),
        (agent(output_schema='{"type":["object","null"]}'), "output_schema_json", "agent_output_schema"),
        (agent(contract=replace(COMPOSED, streaming=True)), "contract.streaming", "handler_not_streaming"),
        (
            agent(contract=replace(COMPOSED, reconcile=Reconcile())),
            "contract.reconcile",
            "reconcile_on_composed",
        ),
        (agent(name="placet.agent"), "name", "name_reserved"),
    ],
)
def test_what_is_no_agent_is_refused(capability: Capability, path: str, code: str) -> None:
    named = problems(capability, replace(FIND, version="2"))
    assert (f"capabilities[0].{path}", code) in found(named)


def tools(*chosen: ToolChoice) -> AgentSpec:
    return AgentSpec(model="fast", tools=chosen)


@pytest.mark.parametrize(
    ("spec", "path", "code"),
    [
        (AgentSpec(model=""), "model", "agent_model"),
        (AgentSpec(model="https://models.example/v1"), "model", "agent_model"),
        (AgentSpec(model="openai://models.example"), "model", "agent_model"),
        (AgentSpec(model="//models.example"), "model", "agent_model"),
        (AgentSpec(model="openai:" + "g" * 122), "model", "agent_model"),
        (AgentSpec(model="openai:gpt\n5"), "model", "agent_model"),
        (AgentSpec(model="fast", instructions="é" * 32769), "instructions", "instructions_too_long"),
        (
            AgentSpec(model="fast", instructions="".join(f"{{{{a{n}}}}}" for n in range(33))),
            "instructions",
            "instructions_arguments",
        ),
        (AgentSpec(model="fast", credential="../secret"), "credential", "agent_credential"),
        (tools(*(ToolChoice(name=f"a.t{n}") for n in range(65))), "tools", "tools_too_many"),
        (tools(ToolChoice(name="*")), "tools[0].name", "tool_name"),
        (tools(ToolChoice(name="orders.fi*")), "tools[0].name", "tool_name"),
        (tools(ToolChoice(name="orders.*.*")), "tools[0].name", "tool_name"),
        (tools(*[ToolChoice(name="orders.find")] * 2), "tools[1].name", "tool_duplicate"),
        (tools(ToolChoice(name="orders.*", version="1")), "tools[0].version", "tool_version_of_pattern"),
        (tools(ToolChoice(name="orders.find", version="-")), "tools[0].version", "choice_version"),
        (tools(ToolChoice(name="orders.find", version="2")), "tools[0].name", "tool_unknown"),
        (tools(ToolChoice(name="orders.pay")), "tools[0].name", "tool_unknown"),
        (tools(ToolChoice(name="support.helper")), "tools[0].name", "tool_is_agent"),
        (tools(ToolChoice(name="placet.catalog.admit")), "tools[0].name", "tool_reserved"),
        (tools(ToolChoice(name="placet.*")), "tools[0].name", "tool_reserved"),
        (
            tools(ToolChoice(name="orders.find", scopes=frozenset({""}))),
            "tools[0].scopes",
            "choice_scopes",
        ),
        (
            tools(ToolChoice(name="orders.find", scopes=frozenset(map(str, range(65))))),
            "tools[0].scopes",
            "choice_scopes",
        ),
        (asking(*(f"a.d{n}" for n in range(17))), "delegates", "delegates_too_many"),
        (asking("nobody.there"), "delegates[0].agent", "delegate_unknown"),
        (asking("orders.find"), "delegates[0].agent", "delegate_not_agent"),
        (asking("orders.*"), "delegates[0].agent", "delegate_name"),
        (asking("placet.agent"), "delegates[0].agent", "delegate_reserved"),
        (asking("support.helper"), "delegates[0]", "delegates_cycle"),
        (AgentSpec(model="fast", budget=Budget(turns=-1)), "budget.turns", "budget_range"),
        (AgentSpec(model="fast", budget=Budget(turns=10_001)), "budget.turns", "budget_range"),
        (AgentSpec(model="fast", budget=Budget(active_ms=999)), "budget.active_time", "budget_range"),
        (
            AgentSpec(model="fast", budget=Budget(cost_micros=10**15 + 1)),
            "budget.cost_micros",
            "budget_range",
        ),
        (
            AgentSpec(model="fast", settings=ModelSettings(max_tokens=0)),
            "settings.max_tokens",
            "agent_setting_range",
        ),
        (
            AgentSpec(model="fast", settings=ModelSettings(temperature=float("nan"))),
            "settings.temperature",
            "agent_setting_range",
        ),
        (AgentSpec(model="fast", settings=ModelSettings(top_p=1.5)), "settings.top_p", "agent_setting_range"),
        (
            AgentSpec(model="fast", settings=ModelSettings(reasoning_effort="low; high")),
            "settings.reasoning_effort",
            "agent_setting_range",
        ),
        (
            AgentSpec(model="fast", settings=ModelSettings(request_timeout_seconds=0.5)),
            "settings.request_timeout",
            "agent_setting_range",
        ),
        (AgentSpec(model="fast", memory=Memory(keep_turns=0)), "memory.keep_turns", "agent_setting_range"),
        (
            AgentSpec(model="fast", provider_retry=ProviderRetry(tries_max=101)),
            "provider_retry.tries_max",
            "agent_setting_range",
        ),
        (AgentSpec(model="fast", output_repairs_max=6), "output_repairs_max", "agent_setting_range"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_spec_that_cannot_be_kept_is_refused_by_its_place(spec: AgentSpec, path: str, code: str) -> None:
    named = problems(agent(spec=spec), FIND)
    assert (f"capabilities[0].agent.{path}", code) in found(named)
    assert not next(each for each in named if each.code == code).warning


def test_every_problem_is_told_at_once() -> None:
    bad = AgentSpec(
        model="https://x", tools=(ToolChoice(name="orders.pay"),), budget=Budget(turns=-1, tokens=-1)
    )
    codes = [each.code for each in problems(agent(spec=bad), agent("support.writer", asking("nobody")))]
    assert ["agent_model", "budget_range", "budget_range", "tool_unknown", "delegate_unknown"] == codes


def test_tools_may_be_in_service_beside_the_manifest() -> None:
    around = Around(
        kinds={("orders.pay", "1"): CapabilityKind.TOOL, ("orders.pay", "2"): CapabilityKind.AGENT},
        current={"orders.pay": "1"},
        stems=frozenset({"mail."}),
    )
    fine = tools(ToolChoice(name="orders.pay"), ToolChoice(name="mail.*"))
    assert [] == problems(agent(spec=fine), around=around)
    pinned = tools(ToolChoice(name="orders.pay", version="2"))
    assert ["tool_is_agent"] == [each.code for each in problems(agent(spec=pinned), around=around)]


def test_a_pattern_that_covers_nothing_yet_is_a_warning() -> None:
    spec = tools(ToolChoice(name="mail.*"), ToolChoice(name="support.*"))
    named = problems(agent(spec=spec), FIND)
    assert [("tool_pattern_empty", True)] * 2 == [(each.code, each.warning) for each in named]


def test_what_is_unknown_here_may_be_there_for_those_whom_it_runs_for() -> None:
    spec = replace(asking("nobody.there"), tools=(ToolChoice(name="orders.pay"),))
    named = problems(agent(spec=spec), around=Around(may_be_elsewhere=True))
    told = [("tool_unknown", True), ("delegate_unknown", True)]
    assert told == [(each.code, each.warning) for each in named]


@pytest.mark.parametrize("member", ["turns", "calls", "tokens", "cost_micros", "active_ms"])
def test_no_agent_may_spend_more_than_the_server_lets_it(member: str) -> None:
    largest = Budget(**{member: 2000})
    for bound, codes in ((0, []), (2000, []), (2001, ["budget_above_server"])):
        spec = AgentSpec(model="fast", budget=Budget(**{member: bound}))
        named = problems(agent(spec=spec), around=Around(budget_max=largest))
        assert codes == [each.code for each in named], bound


def test_agents_that_ask_each_other_without_end_are_named_each_round_once() -> None:
    named = problems(
        agent("a.one", asking("a.two")),
        agent("a.two", asking("a.three", "a.four")),
        agent("a.three", asking("a.one")),
        agent("a.four", asking()),
        agent("b.one", asking("a.one", "b.one")),
    )
    rounds = [each for each in named if each.code == "delegates_cycle"]
    assert named == rounds
    assert 2 == len(rounds)
    assert any(each.message.endswith("b.one → b.one.") for each in rounds)
    assert "capabilities[4].agent.delegates[1]" in [each.path for each in rounds]


def test_versions_that_lead_back_by_name_are_a_round_and_others_are_none() -> None:
    old = agent("a.one", asking("a.two"))
    new = agent("a.one", asking(), version="2")
    assert [] == problems(old, agent("a.two", asking("a.one")), new)
    assert ["delegates_cycle"] == [each.code for each in problems(new, agent("a.two", asking("a.one")), old)]


def test_many_agents_that_all_ask_each_other_are_told_of_within_bounds() -> None:
    names = [f"a.n{index}" for index in range(256)]
    crowd = [agent(name, asking(*names[index + 1 :][:16], names[0])) for index, name in enumerate(names)]
    codes = [each.code for each in problems(*crowd)]
    assert 16 == codes.count("delegates_cycle")


def test_the_most_precise_choice_counts() -> None:
    chosen = by_name([ToolChoice(name="a.*"), ToolChoice(name="a.b.*"), ToolChoice(name="a.b.c")])
    for name, expected in (
        ("a.x", "a.*"),
        ("a.b.x", "a.b.*"),
        ("a.b.c", "a.b.c"),
        ("a.b.c.d", "a.b.*"),
        ("a.b.*", "a.b.*"),
        ("a.c.*", "a.*"),
        ("a.b.c.*", "a.b.*"),
    ):
        choice = choice_for(chosen, name)
        assert choice is not None
        assert expected == choice.name
    for name in ("a", "ab.c", "b.a", "b.*", "ab.*"):
        assert choice_for(chosen, name) is None


def test_arguments_are_what_stands_in_double_braces() -> None:
    assert {"a", "B_2"} == arguments_in("{{a}} {{ B_2 }} {{2}} {c} {{d e}} {{{{")


def test_policies_can_be_about_agents() -> None:
    schema = schema_of([agent(), FIND])
    cedar = 'forbid (principal, action, resource) when { resource.kind == "AGENT" && resource.effect == "COMPOSED" };'
    assert [] == schema_problems(cedar, schema)
