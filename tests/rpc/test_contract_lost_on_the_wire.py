"""A contract comes back from the wire as it went, and what nobody said is not said for them."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from placet.v1 import agent_pb2, approval_pb2, capability_pb2
from placet_server.model.agent import (
    AgentSpec,
    DelegateChoice,
    Memory,
    ModelSettings,
    ProviderRetry,
    ToolChoice,
)
from placet_server.model.approval_text import format_terms, parse_terms
from placet_server.model.ask import INPUT_SCHEMA_TEXT
from placet_server.model.capability import Capability
from placet_server.model.contract import Backoff, Contract, EffectClass, Limits, Reconcile, contract_for
from placet_server.model.errors import MalformedRequest
from placet_server.model.manifest import Manifest
from placet_server.model.usage import Budget
from placet_server.rpc.convert.agent import agent_message, agent_of, budget_of
from placet_server.rpc.convert.approval import terms_message, terms_of
from placet_server.rpc.convert.capability import capability_message, manifest_message, manifest_of

WHOLE = (
    "2 of role:finance,user:anna and (1 of role:legal or 1 of group:board); ttl=4h; evidence=reason,ticket; "
    "login=mfa|hwk; login_age=10m; escalate=role:head after 1h; requester=may; material=/amount,/to"
)
READ = contract_for(EffectClass.READ)


def through_the_wire(contract: Contract) -> Capability:
    capability = Capability(name="orders.find", version="1", contract=contract)
    sent = manifest_message(Manifest(name="shop", capabilities=(capability,))).SerializeToString()
    return manifest_of(capability_pb2.Manifest.FromString(sent)).capabilities[0]


@pytest.mark.parametrize(
    "contract",
    [
        *(contract_for(effect) for effect in EffectClass),
        replace(READ, retry=Backoff(initial_delay_seconds=0.25, multiplier=3.0, elapsed_seconds_max=3600.0)),
        replace(READ, reconcile=Reconcile(automatic=False, elapsed_seconds_max=7200.0)),
        replace(READ, limits=Limits(queue_delay_seconds_max=90.0)),
        replace(READ, limits=Limits(concurrency_max=3, rate_max=0.5)),
        replace(READ, approval=parse_terms(WHOLE)),
        replace(READ, approval=parse_terms("1 of user:anna; ttl=30s")),
    ],
    ids=lambda contract: f"{contract.effect}-{contract.approval is not None}-{contract.risk}",
)
def test_a_contract_comes_back_as_it_went(contract: Contract) -> None:
    assert contract == through_the_wire(contract).contract


def test_a_retry_rule_of_which_nothing_is_said_leaves_the_digest_as_it_was() -> None:
    message = capability_pb2.Manifest(
        capabilities=[
            capability_pb2.Capability(
                name="orders.find",
                version="1",
                contract=capability_pb2.Contract(
                    effect=capability_pb2.EFFECT_CLASS_READ, retry=capability_pb2.RetryRule(attempts_max=3)
                ),
            )
        ]
    )
    (capability,) = manifest_of(message).capabilities
    assert capability.contract.retry is None
    assert capability.contract_digest == through_the_wire(READ).contract_digest


SPEC = AgentSpec(
    model="openai:gpt-5",
    instructions="Help {{name}}.",
    tools=(
        ToolChoice(name="orders.*"),
        ToolChoice(name="orders.find", version="2", scopes=frozenset({"a", "b"})),
        ToolChoice(name="orders.pay", scopes=frozenset()),
    ),
    delegates=(
        DelegateChoice(
            agent="support.writer", version="1", description="Writes.", budget=Budget(active_ms=2500)
        ),
        DelegateChoice(agent="support.reader", scopes=frozenset()),
    ),
    budget=Budget(turns=1, calls=2, equal_calls=3, tokens=10**12, cost_micros=10**15, active_ms=1001),
    memory=Memory(compact_at_tokens=1000, keep_turns=3),
    settings=ModelSettings(
        max_tokens=100,
        temperature=0.0,
        top_p=0.25,
        reasoning_effort="low",
        parallel_tool_calls=False,
        request_timeout_seconds=2.5,
    ),
    output_repairs_max=0,
    provider_retry=ProviderRetry(tries_max=1, delay_seconds_max=1.5),
    credential="shop.openai",
)


@pytest.mark.parametrize("spec", [AgentSpec(model="fast"), SPEC], ids=["bare", "whole"])
def test_an_agent_comes_back_as_it_went(spec: AgentSpec) -> None:
    assert spec == agent_of(agent_pb2.AgentSpec.FromString(agent_message(spec).SerializeToString()))


def test_what_is_not_said_of_an_agent_is_the_servers_to_say() -> None:
    message = capability_pb2.Capability(
        name="support.helper",
        version="1",
        kind=capability_pb2.CAPABILITY_KIND_AGENT,
        contract=capability_pb2.Contract(effect=capability_pb2.EFFECT_CLASS_COMPOSED),
        agent=agent_pb2.AgentSpec(model="fast"),
    )
    (capability,) = manifest_of(capability_pb2.Manifest(capabilities=[message])).capabilities
    assert AgentSpec(model="fast") == capability.agent
    assert INPUT_SCHEMA_TEXT == capability.input_schema
    limits = capability.contract.limits
    told = (limits.timeout_default_seconds, limits.timeout_max_seconds, limits.input_bytes_max)
    assert (3600.0, 86400.0, 3 * 2**20) == told
    # What is shown can be admitted again, and is the same.
    shown = manifest_message(Manifest(name="shop", capabilities=(capability,)))
    assert (capability,) == manifest_of(shown).capabilities
    listed = capability_message(capability, with_schemas=False)
    assert ("", "", "fast") == (
        listed.input_schema_json,
        listed.agent.instructions,
        listed.agent.model,
    )


def test_a_span_that_is_hardly_any_is_no_missing_bound() -> None:
    assert 1 == budget_of(agent_pb2.Budget(active_time=Duration(nanos=1))).active_ms


def test_scopes_and_no_scopes_contradict() -> None:
    twice: dict[str, Any] = {"scopes": ["a"], "no_scopes": True}
    spec = agent_pb2.AgentSpec(
        model="fast",
        tools=[agent_pb2.ToolChoice(name="orders.find"), agent_pb2.ToolChoice(name="orders.pay", **twice)],
        delegates=[agent_pb2.DelegateChoice(agent="support.writer", **twice)],
    )
    capability = capability_pb2.Capability(
        contract=capability_pb2.Contract(effect=capability_pb2.EFFECT_CLASS_COMPOSED), agent=spec
    )
    with pytest.raises(MalformedRequest) as refused:
        manifest_of(capability_pb2.Manifest(capabilities=[capability]))
    path = "manifest.capabilities[0].agent"
    assert [f"{path}.tools[1].no_scopes", f"{path}.delegates[0].no_scopes"] == [
        each.field for each in refused.value.violations
    ]


def test_terms_may_be_said_by_text_alone_or_by_members_alone() -> None:
    terms = parse_terms(WHOLE)
    by_members = terms_message(terms)
    assert format_terms(terms) == by_members.text
    by_members.ClearField("text")
    assert terms == terms_of(by_members, "approval")
    assert terms == terms_of(approval_pb2.ApprovalTerms(text=WHOLE), "approval")


NESTED = approval_pb2.ApprovalRule(any_of=approval_pb2.ApprovalRules(rules=[approval_pb2.ApprovalRule()]))


@pytest.mark.parametrize(
    ("message", "field", "description"),
    [
        (approval_pb2.ApprovalTerms(), "rule", "say who must say yes"),
        (approval_pb2.ApprovalTerms(rule=NESTED), "rule.any_of.rules[0]", "say who must say yes"),
        (approval_pb2.ApprovalTerms(text="2 of finance"), "text", "role:…"),
        (
            approval_pb2.ApprovalTerms(text="1 of role:a", ttl=Duration(seconds=9)),
            "rule",
            "say who must say yes",
        ),
        (
            approval_pb2.ApprovalTerms(text="1 of role:a", evidence=[approval_pb2.EVIDENCE_KIND_UNSPECIFIED]),
            "evidence",
            "is none",
        ),
    ],
)
def test_terms_that_say_nothing_or_two_things_are_refused_by_their_place(
    message: approval_pb2.ApprovalTerms, field: str, description: str
) -> None:
    capability = capability_pb2.Capability(
        contract=capability_pb2.Contract(effect=capability_pb2.EFFECT_CLASS_READ, approval=message)
    )
    with pytest.raises(MalformedRequest) as refused:
        manifest_of(capability_pb2.Manifest(capabilities=[capability]))
    (violation,) = refused.value.violations
    assert f"manifest.capabilities[0].contract.approval.{field}" == violation.field
    assert description in violation.description


def test_a_text_that_says_something_else_than_its_members_is_refused() -> None:
    message = terms_message(parse_terms("1 of role:a"))
    message.text = "1 of role:b"
    with pytest.raises(MalformedRequest) as refused:
        terms_of(message, "approval")
    assert "approval.text" == refused.value.violations[0].field
    half = terms_message(parse_terms("1 of role:a"))
    half.ttl.nanos = 5
    with pytest.raises(MalformedRequest) as refused:
        terms_of(half, "approval")
    assert "approval.ttl" == refused.value.violations[0].field
