"""A schema that lets more through must never pass for one that lets less through."""

from itertools import product
from typing import Any

import orjson
import pytest

from placet_server.model.json_schema import compile_schema
from placet_server.model.json_schema_narrow import is_narrower

CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
TEXT: dict[str, Any] = {"type": "string"}
TO: dict[str, Any] = {"properties": {"to": TEXT}}
OPEN: dict[str, Any] = {"type": "object", **TO}

# From each to the next one it gets narrower.
NARROWING: list[list[Any]] = [
    [True, {}, {"type": ["string", "number"]}, {"type": "number"}, {"type": "integer"}, False],
    [TEXT, {"type": "string", "enum": ["a", "b"]}, {"type": "string", "const": "a", "title": "A"}],
    [{"minimum": 1}, {"minimum": 2, "maximum": 9}, {"minimum": 2, "maximum": 3.5}],
    [{"maxLength": 3}, {"maxLength": 3, "pattern": "^a"}, {"minLength": 1, "maxLength": 3, "pattern": "^a"}],
    [{"type": "object"}, OPEN, {**OPEN, "required": ["to"]}, {**CLOSED, **TO, "required": ["to"]}],
    [{**CLOSED, "properties": {"to": TEXT, "cc": {}}}, {**CLOSED, **TO}, {**CLOSED, "properties": {}}],
    [{"additionalProperties": TEXT}, {**TO, "additionalProperties": {"type": "string", "maxLength": 1}}],
    [
        {"items": {}, "uniqueItems": False},
        {"items": TEXT},
        {"items": {**TEXT, "const": "a"}, "uniqueItems": True},
    ],
    [{"anyOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT, {"type": "null"}], "maxLength": 1}],
    [{"propertyNames": {"maxLength": 3}}, {"propertyNames": {"const": "to", "maxLength": 3}}],
]
# None of these is narrower than one before it in its line, though it looks so.
WIDENING: list[list[Any]] = [
    [{"const": True}, {"const": 1}],
    [{"type": "integer"}, {"type": "number"}],
    [{"enum": ["a"]}, {"enum": ["a", 1]}, {"type": "string"}],
    [{**CLOSED, **TO}, {**CLOSED, "properties": {"to": TEXT, "cc": TEXT}}, OPEN],
    [{"additionalProperties": TEXT}, {"properties": {"to": {}}, "additionalProperties": TEXT}],
    [TO, {"additionalProperties": TEXT, "patternProperties": {"^t": {}}}],
    [{"prefixItems": [{}], "items": TEXT}, {"items": TEXT, "prefixItems": [{}, {}]}],
    [{"$defs": {"a": TEXT}, "$ref": "#/$defs/a"}, {"$defs": {"a": {}}, "$ref": "#/$defs/a"}],
    [{"contains": TEXT}, {"contains": TEXT, "minContains": 0}],
    [{"if": TEXT, "then": {"maxLength": 1}}, {"if": {"const": "b"}, "then": {"maxLength": 1}}],
    [{"not": {"type": "string", "maxLength": 1}}, {"not": {"type": "string", "maxLength": 0}}],
    [{"unevaluatedProperties": False, **TO}, {"unevaluatedProperties": False, "properties": {"cc": TEXT}}],
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.5, 2, 3, 9, 10, "", "a", "b", "abc", "abcd"),
    *([], ["a"], ["b", "b"], ["a", 1], [1, "a"], [1, 2], [1, 1, "a"]),
    *(
        {},
        {"to": "a"},
        {"to": 1},
        {"to": "abcd"},
        {"cc": "a"},
        {"cc": 1},
        {"to": "a", "cc": "b"},
        {"long": "a"},
    ),
]


@pytest.mark.parametrize("line", NARROWING, ids=str)
def test_what_lets_less_through_is_narrower(line: list[Any]) -> None:
    for at, old in enumerate(line):
        assert all(is_narrower(new, old) for new in line[at:])


@pytest.mark.parametrize("line", WIDENING, ids=str)
def test_what_lets_more_through_is_not(line: list[Any]) -> None:
    for at, old in enumerate(line):
        assert not any(is_narrower(new, old) for new in line[at + 1 :])


def test_nothing_narrower_lets_anything_through_that_the_other_does_not() -> None:
    schemas = [schema for line in (*NARROWING, *WIDENING) for schema in line]
    fits = [
        [not compile_schema(orjson.dumps(schema).decode()).violations(value) for value in VALUES]
        for schema in schemas
    ]
    for (new, news), (old, olds) in product(zip(schemas, fits, strict=True), repeat=2):
        if is_narrower(new, old):
            assert all(o for n, o in zip(news, olds, strict=True) if n), (new, old)
