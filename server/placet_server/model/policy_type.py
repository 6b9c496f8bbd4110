"""Inputs as Cedar sees them: which type a JSON Schema gives a value, and the value in Cedar's JSON form.

Cedar knows strings, booleans, 64-bit integers, decimals of four digits, sets of one type and records; what a schema
says beyond that has no type here. A policy cannot be written over what has no type, as checking it against the schema
fails. But schemas come and go, and inputs are not always of the form their schema has a type for: whoever asks for a
member that the input has and Cedar cannot be shown is told Unreadable, and never that it is not there. A rule that
forbids something must not be passed by saying it in a form that the rule cannot see.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

DEPTH_MAX = 8
LONG_MAX = 2**63 - 1
DECIMAL_DIGITS = 4
DECIMAL_MAX = Decimal(LONG_MAX).scaleb(-DECIMAL_DIGITS)
# Cedar reads members of this beginning as escapes of its own JSON form.
RESERVED_PREFIX = "__"
# What Cedar is shown of one input at most: beyond it, deciding would hold up everybody else.
VALUES_MAX = 20_000
TEXT_LENGTH_MAX = 256 * 1024


class Unreadable(ValueError):
    """The input has this member, and Cedar has no form for it. `path` is a JSON Pointer."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path or '/'} has no form in Cedar")
        self.path = path


class Scalar(Enum):
    """By the names of Cedar's JSON schema."""

    STRING = "String"
    BOOLEAN = "Boolean"
    LONG = "Long"
    DECIMAL = "decimal"


@dataclass(frozen=True, slots=True)
class SetOf:
    element: InputType


@dataclass(frozen=True, slots=True)
class RecordOf:
    """Types by member; `required`: those that are never absent."""

    members: Mapping[str, InputType]
    required: frozenset[str]


InputType = Scalar | SetOf | RecordOf
NOTHING_TYPED = RecordOf({}, frozenset())

_SCALARS = {
    "string": Scalar.STRING,
    "boolean": Scalar.BOOLEAN,
    "integer": Scalar.LONG,
    "number": Scalar.DECIMAL,
}


def input_type(schema: Any) -> RecordOf:
    """Of the inputs that an admitted schema allows. What is no object has no members."""
    found = _type(schema, schema, DEPTH_MAX)
    return found if isinstance(found, RecordOf) else NOTHING_TYPED


def merged(types: Collection[RecordOf]) -> RecordOf:
    """Of several versions of one capability: what they say alike; required where all require it."""
    first, *rest = types
    for other in rest:
        first = _merged(first, other)
    return first


def cedar_schema_of(kind: InputType) -> dict[str, Any]:
    """The type as Cedar's JSON schema writes it."""
    if isinstance(kind, SetOf):
        return {"type": "Set", "element": cedar_schema_of(kind.element)}
    if isinstance(kind, RecordOf):
        members = {
            name: cedar_schema_of(member) | {"required": name in kind.required}
            for name, member in kind.members.items()
        }
        return {"type": "Record", "attributes": members}
    if kind is Scalar.DECIMAL:
        return {"type": "Extension", "name": kind.value}
    return {"type": kind.value}


class Wanted:
    """Which members of a value a policy reads, and of which it asks only whether they are there. `whole`: all of it."""

    __slots__ = ("members", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.members: dict[str, Wanted] = {}

    def add(self, path: Sequence[str], *, whole: bool) -> None:
        node = self
        for name in path:
            node = node.members.setdefault(name, Wanted())
        node.whole |= whole

    def merge(self, other: Wanted) -> None:
        """Adds what the other one reads."""
        self.whole |= other.whole
        for name, member in other.members.items():
            self.members.setdefault(name, Wanted()).merge(member)

    def __bool__(self) -> bool:
        return self.whole or bool(self.members)


def projected(kind: RecordOf, value: Any, wanted: Wanted) -> dict[str, Any]:
    """What is wanted of an input, as Cedar's JSON writes values. Null is absent.

    Raises Unreadable for what the input has and Cedar cannot be shown, and if it is too much.
    """
    if isinstance(value, dict):
        return _Projection().record(kind, value, wanted, "")
    if wanted:
        raise Unreadable("")
    return {}


def _type(schema: Any, root: Any, depth: int) -> InputType | None:
    if depth <= 0 or not isinstance(schema, dict):
        return None
    if "$ref" in schema:
        return _type(_target(root, schema["$ref"]), root, depth - 1)
    if choice := schema.get("anyOf") or schema.get("oneOf"):
        others = [each for each in choice if each != {"type": "null"}]
        return _type(others[0], root, depth) if len(others) == 1 else None
    return _of_word(_word(schema), schema, root, depth)


def _of_word(word: str | None, schema: dict[str, Any], root: Any, depth: int) -> InputType | None:
    if word == "array":
        element = _type(schema.get("items"), root, depth - 1)
        return None if element is None or "prefixItems" in schema else SetOf(element)
    if word == "object":
        typed = {
            name: _type(member, root, depth - 1)
            for name, member in schema.get("properties", {}).items()
            if not name.startswith(RESERVED_PREFIX)
        }
        members = {name: kind for name, kind in typed.items() if kind is not None}
        never_null = {name for name in members if not _may_be_null(schema["properties"][name], root, depth)}
        return RecordOf(members, frozenset(schema.get("required", ())) & never_null)
    return _SCALARS.get(word or "")


def _word(schema: dict[str, Any]) -> str | None:
    """The one type that values have, beside null."""
    said = schema.get("type")
    if isinstance(said, str):
        return said
    if isinstance(said, list):
        words = [word for word in said if word != "null"]
        return words[0] if len(words) == 1 else None
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return "string" if values and all(isinstance(value, str) for value in values) else None


def _may_be_null(schema: Any, root: Any, depth: int) -> bool:
    if not isinstance(schema, dict) or depth <= 0:
        return True
    if "$ref" in schema:
        return _may_be_null(_target(root, schema["$ref"]), root, depth - 1)
    said = schema.get("type")
    choices = schema.get("anyOf") or schema.get("oneOf") or ()
    return (isinstance(said, list) and "null" in said) or {"type": "null"} in choices


def _target(root: Any, reference: str) -> Any:
    """Within the schema; None where it leads elsewhere."""
    if reference == "#" or not reference.startswith("#/"):
        return root if reference == "#" else None
    found = root
    for token in reference[2:].split("/"):
        found = found.get(token.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _merged(left: RecordOf, right: RecordOf) -> RecordOf:
    both: dict[str, InputType] = {}
    for name, either in {**left.members, **right.members}.items():
        one, other = left.members.get(name), right.members.get(name)
        if one is None or other is None:
            both[name] = either
        elif isinstance(one, RecordOf) and isinstance(other, RecordOf):
            both[name] = _merged(one, other)
        elif one == other:
            both[name] = one
    return RecordOf(both, left.required & right.required & both.keys())


class _Projection:
    """Of one input; counts what it shows."""

    def __init__(self) -> None:
        self._values = 0
        self._length = 0

    def record(self, kind: RecordOf, value: dict[str, Any], wanted: Wanted, path: str) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name in value if wanted.whole else wanted.members:
            member, place = value.get(name), f"{path}/{name}"
            if member is not None:
                inner = _ALL if wanted.whole else wanted.members[name]
                shown[name] = self._member(kind.members.get(name), name, member, inner, place)
        return shown

    def _member(self, kind: InputType | None, name: str, value: Any, wanted: Wanted, path: str) -> Any:
        if name.startswith(RESERVED_PREFIX):
            raise Unreadable(path)
        if isinstance(kind, RecordOf) and isinstance(value, dict):
            return self.record(kind, value, wanted, path)
        if kind is None and not wanted:
            # Only whether it is there is asked.
            return True
        return self._value(kind, value, path)

    def _value(self, kind: InputType | None, value: Any, path: str) -> Any:
        self._count(value, path)
        match kind, value:
            case SetOf(), list():
                return [self._value(kind.element, element, path) for element in value]
            case RecordOf(), dict():
                return self.record(kind, value, _ALL, path)
            case Scalar.STRING, str():
                return value
            case Scalar.BOOLEAN, bool():
                return value
            case Scalar.LONG, int() | float() if not isinstance(value, bool):
                return _long(value, path)
            case Scalar.DECIMAL, int() | float() if not isinstance(value, bool):
                return {"__extn": {"fn": "decimal", "arg": _decimal(value, path)}}
        raise Unreadable(path)

    def _count(self, value: Any, path: str) -> None:
        self._values += 1
        self._length += len(value) if isinstance(value, str) else 0
        if self._values > VALUES_MAX or self._length > TEXT_LENGTH_MAX:
            raise Unreadable(path)


_ALL = Wanted()
_ALL.whole = True


def _long(value: float, path: str) -> int:
    if value != int(value) or abs(value) > LONG_MAX:
        raise Unreadable(path)
    return int(value)


def _decimal(value: float, path: str) -> str:
    """Exactly the number, or Unreadable."""
    number = Decimal(repr(value))
    if abs(number) > DECIMAL_MAX or number != round(number, DECIMAL_DIGITS):
        raise Unreadable(path)
    return f"{number:.{DECIMAL_DIGITS}f}"
