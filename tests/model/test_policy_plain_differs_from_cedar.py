"""Conditions asked without the engine: they say what Cedar says, or that they do not know."""

import json
from typing import Any

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placet_server.model.policy_plain import Facts, NotPlain, Unsure, condition_of
from placet_server.model.policy_text import parse_policies
from tests.examples import examples

PRINCIPAL: dict[str, Any] = {"tenant": "acme", "roles": ["clerk", "x"], "groups": []}
RESOURCE: dict[str, Any] = {"risk": 3, "hazards": ["FINANCIAL"], "has_approval": False}
WHO, WHAT = {"type": "User", "id": "alice"}, {"type": "Capability", "id": "shop.refund"}
ENTITIES = cedarpy.Entities.from_json_str(
    json.dumps(
        [
            {"uid": WHO, "attrs": PRINCIPAL, "parents": []},
            {"uid": WHAT, "attrs": RESOURCE, "parents": []},
        ]
    )
)
NAMES = ("a", "b", "c")
WORDS = st.sampled_from(("", "x", "clerk", "ä", "FINANCIAL"))
NUMBERS = st.sampled_from((-(2**63), -1, 0, 1, 3, 2**63 - 1))
DECIMALS = st.sampled_from(("-1.0", "0.0", "0.5", "1.0000", "1.0001", "922337203685477.5807"))


def as_decimal(text: str) -> dict[str, Any]:
    return {"__extn": {"fn": "decimal", "arg": text}}


SCALARS = WORDS | NUMBERS | st.booleans() | DECIMALS.map(as_decimal)
VALUES = st.recursive(
    SCALARS | st.lists(WORDS, max_size=3) | st.lists(NUMBERS, max_size=2) | st.lists(SCALARS, max_size=2),
    lambda below: st.dictionaries(st.sampled_from(NAMES), below, max_size=3),
    max_leaves=6,
)
CONTEXTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)

LITERALS = (
    WORDS.map(json.dumps)
    | NUMBERS.map(lambda number: f"({number})")
    | st.sampled_from(("true", "false"))
    | DECIMALS.map(lambda text: f'decimal("{text}")')
)
READS = st.sampled_from(
    (
        *(f"context.{name}" for name in NAMES),
        *(f"context.{one}.{other}" for one in NAMES[:2] for other in NAMES),
        "principal.tenant",
        "principal.roles",
        "principal.missing",
        "resource.risk",
        "resource.hazards",
        "resource.has_approval",
        "context",
        "principal",
    )
)
TESTS = st.sampled_from(
    (
        *(f"(context has {name})" for name in NAMES),
        "(context has a.b)",
        "(context has a.b.c)",
        "(context.a has b)",
        "(principal has roles)",
        '(context.a like "x*")',
        '(principal in Role::"clerk")',
    )
)
OPERATORS = st.sampled_from(("==", "!=", "<", "<=", ">", ">=", "&&", "||", "+"))
METHODS = st.sampled_from(
    ("contains", "containsAny", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")
)
EXPRESSIONS = st.recursive(
    LITERALS | READS | TESTS,
    lambda below: st.one_of(
        st.tuples(below, OPERATORS, below).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(READS | below, METHODS, below).map(lambda t: f"{t[0]}.{t[1]}({t[2]})"),
        below.map(lambda text: f"(!{text})"),
        st.tuples(TESTS, below, below).map(lambda t: f"(if {t[0]} then {t[1]} else {t[2]})"),
        st.lists(below, max_size=3).map(lambda texts: f"[{', '.join(texts)}]"),
    ),
    max_leaves=8,
)
# What people write, so that not all of it is nonsense.
USUAL = st.one_of(
    st.tuples(st.sampled_from(NAMES), OPERATORS, LITERALS).map(
        lambda t: f"(context has {t[0]} && context.{t[0]} {t[1]} {t[2]})"
    ),
    st.tuples(st.sampled_from(NAMES), METHODS, LITERALS).map(
        lambda t: f"(context has {t[0]} && context.{t[0]}.{t[1]}({t[2]}))"
    ),
    st.tuples(READS, OPERATORS, LITERALS).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
)
CLAUSES = st.lists(
    st.tuples(st.sampled_from(("when", "unless")), USUAL | EXPRESSIONS), min_size=1, max_size=2
).map(lambda clauses: " ".join(f"{word} {{ {text} }}" for word, text in clauses))


def told_by_cedar(text: str, context: dict[str, Any]) -> bool | None:
    """None: an error."""
    request = {
        "principal": WHO,
        "action": {"type": "Action", "id": "shop.refund"},
        "resource": WHAT,
        "context": json.dumps(context),
    }
    result = cedarpy.is_authorized(request, text, ENTITIES)
    return None if result.diagnostics.errors else result.allowed


def told_without(text: str, context: dict[str, Any]) -> bool | None:
    """None: it is not known."""
    (policy,) = parse_policies(text).policies
    try:
        return condition_of(policy.node)(Facts(PRINCIPAL, RESOURCE, context))
    except (NotPlain, Unsure):
        return None


@examples(150, long=2000)
@given(CLAUSES, st.lists(CONTEXTS, min_size=1, max_size=4))
def test_a_plain_condition_says_what_cedar_says(clauses: str, contexts: list[dict[str, Any]]) -> None:
    text = f"permit (principal, action, resource) {clauses};"
    if parse_policies(text).problems:
        return
    for context in contexts:
        told = told_without(text, context)
        assert told is None or told == told_by_cedar(text, context)


@pytest.mark.parametrize(
    ("condition", "context", "expected"),
    [
        ("context.a > 5", {"a": 6}, True),
        ("context.a > 5", {"a": 5}, False),
        ("context.a > 5", {"a": True}, None),
        ("context.a > 5", {}, None),
        ("context has a && context.a > 5", {}, False),
        ('context.a.greaterThan(decimal("1.5"))', {"a": as_decimal("1.5001")}, True),
        ('context.a == "x" || context.b', {"a": "x"}, True),
        ('context.a == "x" || context.b', {"a": "y", "b": 1}, None),
        ("context.a == 1", {"a": True}, None),
        ('context.a.contains("x")', {"a": ["y", "x"]}, True),
        ('context.a.contains("x")', {"a": []}, False),
        ("context.a.contains(1)", {"a": [True]}, None),
        ('["x", "y"].contains(context.a)', {"a": "y"}, True),
        ("context has a.b.c", {"a": {"b": {}}}, False),
        ("context has a.b", {"a": as_decimal("1.0")}, None),
        ("if context has a then context.a < 3 else false", {"a": 2}, True),
        ('principal.roles.contains("clerk") && resource.risk >= 3 && context.a == 1', {"a": 1}, True),
        ('context.a like "x*"', {"a": "xy"}, None),
        ('context.a == decimal("0.\u0665")', {"a": as_decimal("0.5")}, None),
    ],
)
def test_what_is_known_without_the_engine(condition: str, context: dict[str, Any], expected: bool) -> None:
    text = f"permit (principal, action, resource) when {{ {condition} }};"
    assert expected == told_without(text, context)
    if expected is not None:
        assert expected == told_by_cedar(text, context)


ORDERED = ("lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")


@pytest.mark.parametrize("one", [-1, 0, 1])
@pytest.mark.parametrize("other", [-1, 0, 1])
def test_every_comparison_at_its_edge(one: int, other: int) -> None:
    numbers = [f"context.n {sign} {other}" for sign in ("==", "!=", "<", "<=", ">", ">=")]
    decimals = [f'context.d.{method}(decimal("{other}.05"))' for method in ORDERED]
    context = {"n": one, "d": as_decimal(f"{one}.0500")}
    for condition in (*numbers, *decimals, 'context.d.lessThan(decimal("0.5"))'):
        text = f"permit (principal, action, resource) when {{ {condition} }};"
        known = told_without(text, context)
        assert known is not None
        assert known == told_by_cedar(text, context)


def test_what_is_too_deep_is_left_to_cedar() -> None:
    deep = " && ".join(["context.a == 1"] * 60)
    assert told_without(f"permit (principal, action, resource) when {{ {deep} }};", {"a": 1}) is None
    flat = " && ".join(["context.a == 1"] * 20)
    assert told_without(f"permit (principal, action, resource) when {{ {flat} }};", {"a": 1}) is True
