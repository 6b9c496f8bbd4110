"""What an agent is asked is refused unless it is exactly what the schema says, and read as it was meant."""

from base64 import b64encode
from typing import Any

import pytest

from placet_server.model.ask import (
    BINARY_BYTES_MAX,
    INPUT_SCHEMA_TEXT,
    Binary,
    Part,
    arguments_of,
    parts_of,
)
from placet_server.model.json_schema import compile_schema

SCHEMA = compile_schema(INPUT_SCHEMA_TEXT)


def binary(**changes: Any) -> dict[str, Any]:
    return {"binary": {"media_type": "image/png", "data": "AAEC"} | changes}


def test_parts_are_read_in_their_order_each_as_its_kind() -> None:
    value = {
        "parts": [{"text": "look: {{name}}"}, {"json": {"b": 1, "a": None}}, binary(name="a.png")],
        "arguments": {"name": "Ann"},
    }
    assert () == SCHEMA.violations(value)
    assert (
        Part(text="look: {{name}}"),
        Part(json='{"a":null,"b":1}'),
        Part(binary=Binary(media_type="image/png", data=b"\0\1\2", name="a.png")),
    ) == parts_of(value)
    assert {"name": "Ann"} == arguments_of(value)
    assert {} == arguments_of({"parts": [{"text": "hello"}]})


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_any_json_may_be_a_part(value: Any) -> None:
    asked = {"parts": [{"json": value}]}
    assert () == SCHEMA.violations(asked)
    assert parts_of(asked)[0].json is not None


@pytest.mark.parametrize(
    "value",
    [
        {},
        "hello",
        {"parts": []},
        {"parts": [{}]},
        {"parts": [{"text": ""}]},
        {"parts": [{"text": "a", "json": 1}]},
        {"parts": [{"image": "a"}]},
        {"parts": [{"text": "a"}] * 65},
        {"parts": [{"text": "a"}], "model": "other"},
        {"parts": [binary(media_type="png")]},
        {"parts": [binary(media_type="image/png\nx")]},
        {"parts": [binary(data="AAE")]},
        {"parts": [binary(data="AA=E")]},
        {"parts": [binary(data="AAE\n")]},
        {"parts": [binary(data="A-_E")]},
        {"parts": [binary(data=b64encode(bytes(BINARY_BYTES_MAX + 3)).decode())]},
        {"parts": [{"text": "a"}], "arguments": {"no name": "x"}},
        {"parts": [{"text": "a"}], "arguments": {"name": 1}},
        {"parts": [{"text": "a"}], "arguments": {f"a{n}": "" for n in range(33)}},
    ],
    ids=lambda value: str(value)[:60],
)
def test_anything_else_is_refused(value: Any) -> None:
    assert SCHEMA.violations(value)


def test_the_largest_binary_part_is_taken() -> None:
    whole = {"parts": [binary(data=b64encode(bytes(BINARY_BYTES_MAX)).decode())]}
    assert () == SCHEMA.violations(whole)
    data = parts_of(whole)[0].binary
    assert data is not None
    assert BINARY_BYTES_MAX == len(data.data)
