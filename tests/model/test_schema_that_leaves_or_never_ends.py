import json
from pathlib import Path
from typing import Any

import pytest

from placet_server.model.json_schema import DIALECT, SchemaRefused, compile_schema

DOUBLING: dict[str, Any] = {"n0": {"type": "string"}} | {
    f"n{i}": {"allOf": [{"$ref": f"#/$defs/n{i - 1}"}, {"$ref": f"#/$defs/n{i - 1}"}]} for i in range(1, 31)
}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"$ref": "http://example.com/schema"}, "/$ref"),
        ({"$ref": "other.json#/a"}, "/$ref"),
        ({"properties": {"a": {"items": {"$ref": "file:///etc/passwd"}}}}, "/properties/a/items/$ref"),
        ({"unknown": {"$ref": "https://example.com"}, "$ref": "#/unknown"}, "/unknown/$ref"),
        ({"properties": {"type": {"$ref": "https://example.com"}}}, "/properties/type/$ref"),
        ({"$dynamicRef": "http://example.com#x"}, "/$dynamicRef"),
        ({"$defs": {"a": {"$id": "http://example.com/a"}}}, "/$defs/a/$id"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "/$schema"),
        ({"$schema": 5}, "/$schema"),
        ({"type": "strin"}, "/type"),
        ({"minLength": -1}, "/minLength"),
        ({"pattern": "("}, "/pattern"),
        ({"pattern": "(?=backtracking)"}, "/pattern"),
        ({"pattern": "(a{1000}){1000}"}, "/pattern"),
        ([1], ""),
        ("text", ""),
        ({"$ref": "#/nowhere"}, ""),
        ({"$ref": "#"}, ""),
        ({"anyOf": [{"type": "string"}, {"not": {"$ref": "#"}}]}, ""),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, ""),
        ({"$defs": {"a": {"$anchor": "x", "allOf": [{"$ref": "#x"}]}}}, ""),
        ({"$defs": DOUBLING, "$ref": "#/$defs/n30"}, ""),
        ({"$ref": "#/const", "const": {"type": "string"}}, ""),
    ],
)
def test_a_schema_that_may_not_be_admitted_is_refused_with_its_place(schema: Any, path: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        compile_schema(json.dumps(schema))
    assert path == refused.value.path


@pytest.mark.parametrize(
    "text", ["{", '{"type":"string","type":"null"}', '"' + "x" * 300_000 + '"', "[" * 1000]
)
def test_a_schema_must_be_strict_json_of_bounded_size_and_depth(text: str) -> None:
    with pytest.raises(SchemaRefused):
        compile_schema(text)


def test_a_file_reference_reads_no_file(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type":"string"}')
    with pytest.raises(SchemaRefused):
        compile_schema(json.dumps({"$ref": schema.as_uri()}))


def test_a_reference_within_the_schema_works_even_back_to_the_root() -> None:
    tree = compile_schema('{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}')
    assert () == tree.violations({"left": {"right": {}}})
    assert ["/left/right"] == [v.path for v in tree.violations({"left": {"right": 1}})]


def test_a_property_may_be_named_like_a_keyword() -> None:
    schema = compile_schema(
        json.dumps({"properties": {"$ref": {"type": "string"}, "$schema": {"type": "null"}}})
    )
    assert ["/$ref", "/$schema"] == [v.path for v in schema.violations({"$ref": 1, "$schema": 1})]


def test_the_dialect_may_be_named_and_an_id_given_at_the_root() -> None:
    schema = {"$schema": DIALECT, "$id": "https://example.com/a", "$ref": "#/$defs/a", "$defs": {"a": False}}
    assert 1 == len(compile_schema(json.dumps(schema)).violations(1))


def test_equal_schemas_are_compiled_once() -> None:
    assert compile_schema('{"type": "string", "minLength": 1}') is compile_schema(
        '{"minLength":1,"type":"string"}'
    )


def test_the_empty_schema_allows_anything() -> None:
    assert () == compile_schema("").violations({"any": [None]})


@pytest.mark.timeout(5)
def test_a_pattern_that_would_backtrack_for_ever_answers_at_once() -> None:
    schema = compile_schema('{"pattern":"^(a+)+$"}')
    assert ["pattern"] == [v.rule for v in schema.violations("a" * 100_000 + "!")]


@pytest.mark.timeout(5)
def test_a_million_violations_cost_no_more_than_one() -> None:
    schema = compile_schema('{"items":{"type":"string"}}')
    assert ["schema"] == [v.rule for v in schema.violations([1] * 500_000)]


@pytest.mark.timeout(5)
@pytest.mark.parametrize("union", ["allOf", "anyOf", "oneOf"])
def test_a_recursive_union_never_explains_a_deep_value_for_ever(union: str) -> None:
    branch = {union: [{"$ref": "#"}, {"$ref": "#"}]}
    schema = compile_schema(json.dumps({"type": "object", "properties": {"a": branch}}))
    deep: Any = 5
    for _ in range(40):
        deep = {"a": deep}
    assert ["schema"] == [v.rule for v in schema.violations(deep)]
    assert ["/a"] == [v.path for v in schema.violations({"a": 5})]


def test_a_union_doubled_at_every_level_is_refused() -> None:
    levels: dict[str, Any] = {"n0": {"type": "string"}}
    for i in range(1, 31):
        below = {"$ref": f"#/$defs/n{i - 1}"}
        levels[f"n{i}"] = {"type": "object", "properties": {"a": {"anyOf": [below, below]}}}
    with pytest.raises(SchemaRefused):
        compile_schema(json.dumps({"$defs": levels, "$ref": "#/$defs/n30"}))


@pytest.mark.timeout(5)
def test_two_unions_that_recur_through_each_other_answer_at_once() -> None:
    def union(name: str) -> dict[str, Any]:
        below = {"$ref": f"#/$defs/{name}"}
        return {"type": "object", "properties": {"a": {"anyOf": [below, below]}}}

    schema = compile_schema(json.dumps({"$defs": {"x": union("y"), "y": union("x")}, "$ref": "#/$defs/x"}))
    deep: Any = 5
    for _ in range(50):
        deep = {"a": deep}
    assert ["schema"] == [v.rule for v in schema.violations(deep)]


def test_a_plain_order_is_explained_to_the_last_field() -> None:
    line = {"type": "object", "properties": {"sku": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    schema = compile_schema(
        json.dumps({"properties": {"lines": {"items": {"$ref": "#/$defs/line"}}}, "$defs": {"line": line}})
    )
    found = schema.violations({"lines": [{"sku": "a"}] * 300 + [{"sku": 5}]})
    assert ["/lines/300/sku"] == [v.path for v in found]


def test_at_most_sixteen_violations_are_named_in_order() -> None:
    schema = compile_schema('{"items":{"type":"string"}}')
    found = schema.violations([1] * 30)
    assert 16 == len(found)
    assert sorted(v.path for v in found) == [v.path for v in found]


SECRETS: list[tuple[Any, Any, str]] = [
    ({"type": "integer"}, "hunter2", "type"),
    ({"enum": ["a"]}, "hunter2", "enum"),
    ({"const": "a"}, "hunter2", "const"),
    ({"pattern": "^a$"}, "hunter2", "pattern"),
    ({"format": "date-time"}, "hunter2", "format"),
    ({"maxLength": 1}, "hunter2", "maxLength"),
    ({"uniqueItems": True}, ["hunter2", "hunter2"], "uniqueItems"),
    ({"contains": {"const": 1}}, ["hunter2"], "contains"),
    ({"not": {"type": "string"}}, "hunter2", "not"),
    ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "hunter2", "anyOf"),
    ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "hunter2", "oneOf"),
    ({"additionalProperties": False, "properties": {"a": True}}, {"hunter2": 1}, "additionalProperties"),
    ({"unevaluatedProperties": False}, {"hunter2": 1}, "unevaluatedProperties"),
    ({"propertyNames": {"maxLength": 2}}, {"hunter2": 1}, "propertyNames"),
    ({"dependentRequired": {"a": ["b"]}}, {"a": "hunter2"}, "required"),
]


@pytest.mark.parametrize(("schema", "value", "rule"), SECRETS)
def test_a_violation_never_repeats_the_value(schema: Any, value: Any, rule: str) -> None:
    (found,) = compile_schema(json.dumps(schema)).violations(value)
    assert rule == found.rule
    assert "hunter2" not in found.message


def test_a_long_message_is_cut() -> None:
    (found,) = compile_schema(json.dumps({"enum": ["x" * 1000]})).violations(1)
    assert 256 == len(found.message)
