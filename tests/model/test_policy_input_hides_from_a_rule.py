"""Inputs as policies see them: by their schema's types, exactly, and never absent because they are hard to show."""

from typing import Any

import pytest

from placet_server.model.policy_type import (
    Scalar,
    Unreadable,
    Wanted,
    cedar_schema_of,
    input_type,
    merged,
    projected,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "amount": {"type": "number"},
        "count": {"type": "integer"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "kind": {"enum": ["a", "b"]},
        "free": {},
        "either": {"type": ["string", "integer"]},
        "who": {"$ref": "#/$defs/person"},
        "__entity": {"type": "string"},
    },
    "required": ["to", "note", "who"],
    "$defs": {
        "person": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "raw": {}},
            "required": ["name"],
        }
    },
}
KIND = input_type(SCHEMA)


def wanted(*paths: str, whole: bool = True) -> Wanted:
    found = Wanted()
    for path in paths:
        found.add(path.split("."), whole=whole)
    return found


def everything() -> Wanted:
    found = Wanted()
    found.whole = True
    return found


def test_a_schema_gives_the_types_that_cedar_knows() -> None:
    assert {"to", "amount", "count", "note", "tags", "kind", "who"} == KIND.members.keys()
    # What may be null may be absent.
    assert {"to", "who"} == KIND.required
    assert (Scalar.DECIMAL, Scalar.LONG) == (KIND.members["amount"], KIND.members["count"])
    assert {"type": "Set", "element": {"type": "String"}} == cedar_schema_of(KIND.members["tags"])


def test_versions_of_a_capability_share_what_they_say_alike() -> None:
    other = input_type(
        {
            "type": "object",
            "properties": {"to": {"type": "integer"}, "new": {"type": "string"}, "who": {"type": "object"}},
        }
    )
    both = merged([KIND, other])
    assert "to" not in both.members
    assert frozenset() == both.required
    assert both.members["new"] is Scalar.STRING


def test_values_are_shown_exactly() -> None:
    value = {"to": "x", "amount": 12.5, "count": 3.0, "note": None, "tags": ["a"], "who": {"name": "n"}}
    shown = projected(KIND, value, wanted("to", "amount", "count", "note", "tags", "who.name"))
    amount = {"__extn": {"fn": "decimal", "arg": "12.5000"}}
    assert {"to": "x", "amount": amount, "count": 3, "tags": ["a"], "who": {"name": "n"}} == shown


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"amount": 0.00001}, "amount"),
        ({"amount": 1e15}, "amount"),
        ({"amount": "9"}, "amount"),
        ({"count": 1.5}, "count"),
        ({"count": 1e300}, "count"),
        ({"count": True}, "count"),
        ({"free": 1}, "free"),
        ({"either": "x"}, "either"),
        ({"tags": ["a", None]}, "tags"),
        ({"tags": "a"}, "tags"),
        ({"who": {"name": "n", "raw": 1}}, "who"),
        ({"who": {"name": "n", "raw": 1}}, "who.raw"),
        ({"who": "somebody"}, "who.name"),
        ({"__entity": "x"}, "__entity"),
        ("no object", "amount"),
        ({"tags": ["a"] * 30_000}, "tags"),
        ({"to": "x" * 300_000}, "to"),
    ],
)
def test_what_a_rule_reads_and_cannot_be_shown_is_never_absent(value: Any, read: str) -> None:
    with pytest.raises(Unreadable):
        projected(KIND, value, wanted(read))


def test_what_no_rule_reads_may_be_anything() -> None:
    value = {"to": "x", "amount": 0.00001, "free": [1, {"a": 2}], "who": {"name": "n", "raw": 1}}
    assert {"to": "x", "who": {"name": "n"}} == projected(KIND, value, wanted("to", "who.name"))
    # Only whether it is there is asked.
    assert {"free": True} == projected(KIND, value, wanted("free", whole=False))
    with pytest.raises(Unreadable):
        projected(KIND, value, everything())


def test_members_that_cedar_would_take_for_its_own_are_not_passed_on() -> None:
    escape = {"__extn": {"fn": "decimal", "arg": "1.0"}}
    with pytest.raises(Unreadable):
        projected(KIND, escape, everything())
    with pytest.raises(Unreadable):
        projected(KIND, {"who": {"name": "n", **escape}}, wanted("who"))
