"""What Python types become as JSON Schema, and what handlers are handed and return."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

import placet
from placet import Failure
from placet.v1 import capability_pb2


class Colour(StrEnum):
    RED = "red"


class Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    sku: str
    due: date
    colour: Colour = Colour.RED


class Order(BaseModel):
    lines: list[Line]
    note: str | None = None


@dataclass
class Point:
    x: int


class Row(TypedDict):
    y: int


def _tool(function: Any, **options: Any) -> placet.Tool:
    app = placet.App("shop")
    app.tool("shop.tool", options.pop("effect", "read"), **options)(function)
    return app.tools[0]


def _input(tool: placet.Tool) -> Any:
    return json.loads(tool.capability.input_schema_json)


def _output(tool: placet.Tool) -> Any:
    return json.loads(tool.capability.output_schema_json)


def test_parameters_become_an_object_that_allows_nothing_else() -> None:
    def handler(order: str, amount: Annotated[str, Field(pattern="^[0-9]+$")], copy: int = 2) -> None:
        pass

    assert {
        "type": "object",
        "additionalProperties": False,
        "required": ["order", "amount"],
        "properties": {
            "order": {"type": "string"},
            "amount": {"type": "string", "pattern": "^[0-9]+$"},
            "copy": {"type": "integer", "default": 2},
        },
    } == _input(_tool(handler))


def test_tools_that_are_almost_alike_are_told_apart() -> None:
    """Though True equals 1, and a union another one in any order."""

    def one(n: int = 1) -> None: ...
    def true(n: int = True) -> None: ...
    def text(n: int = "1") -> None: ...  # type: ignore[assignment]
    def needed(n: int) -> None: ...
    def floating(n: float = 1) -> None: ...
    def called(m: int = 1) -> None: ...

    functions = (one, true, text, needed, floating, called)
    for _ in range(2):
        schemas = [
            json.dumps(_input(_tool(function))["properties"], sort_keys=True) for function in functions
        ]
        assert len(functions) == len(set(schemas))
        assert {"default": 1, "type": "integer"} == json.loads(schemas[0])["n"]
        assert json.loads(schemas[1])["n"]["default"] is True

    def first(n: int | str, m: list[int | str]) -> None: ...
    def last(n: str | int, m: list[str | int]) -> None: ...

    assert ["integer", "string"] == [
        each["type"] for each in _input(_tool(first))["properties"]["n"]["anyOf"]
    ]
    assert ["string", "integer"] == [each["type"] for each in _input(_tool(last))["properties"]["n"]["anyOf"]]


def test_no_parameters_become_the_empty_object() -> None:
    assert {"type": "object", "additionalProperties": False, "properties": {}} == _input(_tool(lambda: None))


def test_a_model_is_the_whole_input_and_refers_only_within_itself() -> None:
    def handler(order: Order) -> Order:
        return order

    schema = _input(_tool(handler))
    assert {"$ref": "#/$defs/Line"} == schema["properties"]["lines"]["items"]
    assert schema["$defs"]["Line"]["additionalProperties"] is False
    assert ["lines"] == _output(_tool(handler))["required"]


@pytest.mark.parametrize(("annotation", "name"), [(Point, "x"), (Row, "y")])
def test_dataclasses_and_typed_dicts_are_the_whole_input_too(annotation: Any, name: str) -> None:
    def handler(value: Any) -> None:
        pass

    handler.__annotations__["value"] = annotation
    assert list(_input(_tool(handler))["properties"]) == [name]


def test_two_models_are_members() -> None:
    def handler(a: Point, b: Point) -> int:
        return a.x + b.x

    tool = _tool(handler)
    assert ["a", "b"] == list(_input(tool)["properties"])
    assert 3 == tool.call(None, '{"a": {"x": 1}, "b": {"x": 2}}')


def test_parameter_names_may_be_anything_python_allows() -> None:
    def handler(schema: str, copy: str, _hidden: str, model_fields: str) -> str:
        return schema + copy + _hidden + model_fields

    value = {"schema": "a", "copy": "b", "_hidden": "c", "model_fields": "d"}
    tool = _tool(handler)
    assert sorted(_input(tool)["required"]) == sorted(value)
    assert "abcd" == tool.call(None, json.dumps(value))


def test_a_strict_model_takes_what_json_can_say() -> None:
    def handler(order: Order) -> Order:
        assert order.lines[0].due == date(2026, 1, 2)
        return order

    output = _tool(handler).call(None, '{"lines": [{"sku": "s", "due": "2026-01-02"}]}')
    assert {"lines": [{"sku": "s", "due": "2026-01-02", "colour": "red"}], "note": None} == output


def test_an_input_that_the_types_refuse_is_a_failure_that_did_nothing_and_shows_no_values() -> None:
    def handler(pin: Annotated[str, Field(max_length=2)]) -> None:
        raise AssertionError("not reached")

    with pytest.raises(Failure) as caught:
        _tool(handler).call(None, '{"pin": "12345"}')
    assert (
        "invalid_input",
        "invalid",
        "not_done",
    ) == (caught.value.code, caught.value.category, caught.value.effect)
    assert "/pin: String should have at most 2 characters" == caught.value.message


def test_a_given_schema_wins_and_hands_the_value_over_whole() -> None:
    def handler(value: Any) -> Any:
        return value

    tool = _tool(handler, input_schema={"type": "array"}, output_schema={"type": "array"})
    assert ({"type": "array"}, {"type": "array"}) == (_input(tool), _output(tool))
    assert [1] == tool.call(None, "[1]")


def test_outputs_are_written_as_their_annotation_says_and_anything_goes_without_one() -> None:
    def said() -> dict[str, Decimal]:
        return {"amount": Decimal("1.10")}

    def unsaid():  # type: ignore[no-untyped-def]
        return {"point": Point(x=1), "at": date(2026, 1, 2)}

    assert {"amount": "1.10"} == _tool(said).call(None, "{}")
    assert "" == _tool(unsaid).capability.output_schema_json
    assert {"point": {"x": 1}, "at": "2026-01-02"} == _tool(unsaid).call(None, "{}")


def test_an_output_that_is_not_json_goes_on_to_the_gate_that_refuses_it() -> None:
    thing = object()

    def handler():  # type: ignore[no-untyped-def]
        return thing

    assert _tool(handler).call(None, "{}") is thing


async def test_the_context_is_handed_over_by_annotation_in_any_place() -> None:
    async def handler(order: str, context: placet.Context) -> tuple[str, Any]:
        return order, context is marker

    marker = object()
    tool = _tool(handler)
    assert (True, True) == (tool.is_async, tool.wants_context)
    assert ["order"] == list(_input(tool)["properties"])
    assert ["A", True] == await tool.call(marker, '{"order": "A"}')


def test_two_words_make_a_contract() -> None:
    async def handler() -> None:
        """Does it."""

    contract = _tool(handler, effect="idempotent").capability.contract
    assert contract.effect == capability_pb2.EFFECT_CLASS_IDEMPOTENT
    assert contract.effect_key_ttl.ToTimedelta() == timedelta(hours=24)
    assert (
        True,
        False,
        False,
    ) == (contract.cancellable, contract.streaming, contract.HasField("no_approval"))
    assert "Does it." == _tool(handler).capability.presentation.description
    assert not _tool(lambda: None).cancellable


def test_every_word_reaches_the_contract() -> None:
    tool = _tool(
        lambda: None,
        effect="idempotent",
        effect_key_ttl=60,
        hazards=["financial", "delete"],
        risk="critical",
        key="optional",
        key_scope="tenant",
        key_ttl=timedelta(days=1),
        attempts_max=5,
        timeout=1.5,
        timeout_max=30,
        input_bytes_max=10,
        output_bytes_max=20,
        approval="2 of role:finance; ttl=4h",
        no_approval="tested",
        credentials=placet.Credentials(issuers=["bank"], scopes=["pay"]),
        sensitive=["/card/number"],
        cancellable=True,
    )
    contract = tool.capability.contract
    assert contract.limits.timeout_default.ToTimedelta() == timedelta(seconds=1.5)
    assert contract.idempotency.ttl.ToTimedelta() == timedelta(days=1)
    assert contract.idempotency.scope == capability_pb2.KEY_SCOPE_TENANT
    assert list(contract.hazards) == [capability_pb2.HAZARD_FINANCIAL, capability_pb2.HAZARD_DELETE]
    assert (True, ["bank"]) == (contract.credentials.required, list(contract.credentials.issuers))
    assert (5, "tested") == (contract.retry.attempts_max, contract.no_approval.reason)
    assert "2 of role:finance; ttl=4h" == contract.approval.text
    assert ["/card/number"] == list(contract.data.sensitive_paths)
