"""Whole policies about one call, asked with and without the engine: the same answer, whoever calls what with which
input, and whatever the heads say."""

import json
from collections.abc import Sequence
from typing import Any

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet.app import App
from placet_server.core.decision.policy_slice import Question, Slice
from placet_server.model.caller import Caller, CallerKind
from placet_server.model.policy_schema import (
    Offered,
    action_entities,
    action_uid,
    capability_entity,
    capability_uid,
    principal_entity,
    principal_uid,
)
from placet_server.model.policy_text import Policy, parse_policies
from placet_server.rpc.convert.capability import manifest_of
from tests.examples import examples

app = App("shop")


@app.tool("shop.refund", "idempotent", risk="high")
async def refund(count: int, note: str, amount: float, tags: list[str] | None = None) -> None:
    pass


OFFERED = Offered(capability=manifest_of(app.manifest()).capabilities[0], manifest="shop")
CALLERS = (
    Caller(tenant="acme", subject="alice", roles=("clerk",)),
    Caller(tenant="acme", subject="bob", groups=("finance",)),
    Caller(tenant="acme", subject="alice", kind=CallerKind.SERVICE),
    Caller(tenant="acme", subject="clerk", kind=CallerKind.AGENT, roles=("clerk", "finance")),
)
PRINCIPALS = (
    "principal",
    'principal == User::"alice"',
    'principal == Service::"alice"',
    'principal in Role::"clerk"',
    'principal in Group::"finance"',
    'principal in User::"bob"',
    "principal is Agent",
    'principal is User in Role::"clerk"',
)
ACTIONS = (
    "action",
    'action == Action::"shop.refund"',
    'action in Action::"shop"',
    'action in Action::"any"',
    'action in [Action::"other", Action::"shop"]',
    'action == Action::"shop.look"',
)
RESOURCES = (
    "resource",
    "resource is Capability",
    'resource == Capability::"shop.refund"',
    'resource in Capability::"shop.refund"',
    'resource == Capability::"other"',
    'resource == Other::"shop.refund"',
    "resource is Other",
)
CONDITIONS = (
    "context.input.count > 5",
    "context.input.count == 5 && resource.risk >= 3",
    'context.input.amount.greaterThan(decimal("10.5"))',
    'context.input.note == "x" || context.input.note == "y"',
    'context.input.note like "x*"',
    'context.input has tags && context.input.tags.contains("late")',
    'context.labels.contains("team=a")',
    'context has parent && context.parent == "shop.order"',
    "context.delegation_depth == 0",
    'principal.roles.contains("clerk") && context.input.count < 6',
    "context.input.count.note == 1",
)
POLICIES = st.lists(
    st.tuples(
        st.sampled_from(("permit", "permit", "forbid")),
        st.sampled_from(PRINCIPALS),
        st.sampled_from(ACTIONS),
        st.sampled_from(RESOURCES),
        st.sampled_from(("when", "when", "unless")),
        st.sampled_from(CONDITIONS),
    ),
    min_size=1,
    max_size=5,
).map(
    lambda parts: [
        f'@id("p{number}") {effect} ({principal}, {action}, {resource}) {word} {{ {condition} }};'
        for number, (effect, principal, action, resource, word, condition) in enumerate(parts)
    ]
)
INPUTS = st.fixed_dictionaries(
    {
        "count": st.sampled_from((0, 5, 6)),
        "note": st.sampled_from(("", "x", "xy")),
        "amount": st.sampled_from((10, 10.5, 10.5001)),
    },
    optional={"tags": st.sampled_from(([], ["late"], ["early", "late"]))},
)
ALL = '@id("all") permit (principal, action, resource) when { context.delegation_depth == 0 };'


def asked(policies: Sequence[Policy], question: Question) -> tuple[str, set[str]]:
    answer, _ = Slice("acme", OFFERED, policies, ()).ask(question)
    return answer.problem, {policy.name for policy in answer.policies}


def told_by_cedar(policies: Sequence[Policy], question: Question) -> tuple[str, set[str]]:
    """Of all policies at once, without any choice made before."""
    given = dict(question.input_value)
    given["amount"] = {"__extn": {"fn": "decimal", "arg": f"{given['amount']:.4f}"}}
    context = {
        "input": given,
        "labels": [f"{key}={value}" for key, value in question.labels.items()],
        "delegation_depth": len(question.caller.delegation),
    } | ({"parent": question.parent} if question.parent else {})
    request = {
        "principal": principal_uid(question.caller),
        "action": action_uid("shop.refund"),
        "resource": capability_uid("shop.refund"),
        "context": json.dumps(context),
    }
    entities = [
        *action_entities("shop.refund"),
        capability_entity(OFFERED, ()),
        principal_entity(question.caller),
    ]
    result = cedarpy.is_authorized(request, "\n".join(policy.text for policy in policies), entities)
    told = result.diagnostics
    if told.errors:
        return "not_evaluated", {
            name for place, name in _names(policies).items() for error in told.errors if f"`{place}`" in error
        }
    names = {_names(policies)[place] for place in told.reasons}
    if result.allowed:
        return "", names
    return ("forbidden", names) if names else ("not_permitted", names)


def _names(policies: Sequence[Policy]) -> dict[str, str]:
    return {f"policy{place}": policy.name for place, policy in enumerate(policies)}


@examples(80, long=1000)
@given(
    POLICIES,
    st.sampled_from(CALLERS),
    INPUTS,
    st.sampled_from(({}, {"team": "a"})),
    st.sampled_from(("", "shop.order")),
)
def test_both_ways_say_the_same(
    texts: list[str], caller: Caller, given_input: dict[str, Any], labels: dict[str, str], parent: str
) -> None:
    parsed = parse_policies("\n".join([ALL, *texts]))
    assert () == parsed.problems
    question = Question(caller, OFFERED, given_input, labels, parent)
    assert told_by_cedar(parsed.policies, question) == asked(parsed.policies, question)


def test_plain_policies_do_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the whole of it would be for nothing."""
    text = ALL + '@id("many") forbid (principal, action, resource) when { context.input.count > 5 };'
    policies = parse_policies(text).policies
    slice_ = Slice("acme", OFFERED, policies, ())
    question = Question(CALLERS[0], OFFERED, {"count": 5, "note": "", "amount": 1}, {})
    assert "" == slice_.ask(question)[0].problem

    def refuse(*_: object) -> None:
        raise AssertionError("the engine was asked")

    monkeypatch.setattr(cedarpy, "is_authorized", refuse)
    assert "" == slice_.ask(question)[0].problem
    many = question._replace(input_value={"count": 6, "note": "", "amount": 1})
    assert "forbidden" == slice_.ask(many)[0].problem
    # What has another type than its schema says is not decided here: it is told to nobody as absent.
    wrong = question._replace(input_value={"count": "6", "note": "", "amount": 1})
    assert "not_readable" == slice_.ask(wrong)[0].problem
