"""JSON Schema 2020-12, compiled once: nothing is fetched, patterns run in linear time, findings carry no values."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import unquote

import jsonschema_rs

from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge
from placet_server.model.json_exact import pointer
from placet_server.model.json_text import CanonicalJson, canonicalize

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_BYTES_MAX = 256 * 1024
VIOLATIONS_MAX = 16
MESSAGE_LENGTH_MAX = 256

# A schema and its applicators at one place of the input: more than any author writes, less than a denial of service.
_STEPS_IN_PLACE_MAX = 10_000
# Of larger values only the first violation is named.
_NODES_FOR_ALL_ERRORS_MAX = 4096
_COMPILED_MAX = 2048

# Members whose values are data, not schemas.
_DATA = frozenset({"const", "enum", "default", "examples", "required", "type", "dependentRequired"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_REFERENCES = ("$ref", "$dynamicRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")

_PATTERNS = jsonschema_rs.RegexOptions(size_limit=2**20, dfa_size_limit=2**21)


class SchemaRefused(ValueError):
    """Not a schema that may be admitted. `path` is a JSON Pointer into the schema."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule: JSON Pointer into the value, keyword, and a sentence without any text of the value."""

    path: str
    rule: str
    message: str


class CompiledSchema:
    """A schema ready for use. Safe to share between tasks and threads."""

    __slots__ = ("_is_valid", "_validator", "source")

    def __init__(self, source: CanonicalJson) -> None:
        self.source = source
        self._validator = _compiled(source.value)
        self._is_valid = self._validator.is_valid

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """The first 16 violations by path and rule, of a large value only one; empty if the value fits."""
        if self._is_valid(value):
            return ()
        # All errors are found before the first is given: an input of a million wrong elements would hold everyone up.
        errors = (
            [_first_error(self._validator, value)] if _large(value) else self._validator.iter_errors(value)
        )
        found = {_violation(error) for error in errors}
        return tuple(sorted(found, key=lambda v: (v.path, v.rule, v.message))[:VIOLATIONS_MAX])


def compile_schema(text: str) -> CompiledSchema:
    """Compile a schema; equal schemas share one compilation. The empty text allows any JSON.

    Raises SchemaRefused: not strict JSON, larger than 256 KiB, another dialect, a reference that leaves the schema or
    leads back to itself, applicators that multiply, a pattern that needs backtracking.
    """
    try:
        source = canonicalize(text or "true", bytes_max=SCHEMA_BYTES_MAX)
    except MalformedJson as error:
        raise SchemaRefused(f"not JSON: {error.detail} at offset {error.offset}") from None
    except JsonNotInteroperable as error:
        raise SchemaRefused(error.problem, error.path) from None
    except PayloadTooLarge:
        raise SchemaRefused(f"larger than {SCHEMA_BYTES_MAX} bytes") from None
    return _cached(source.text)


@lru_cache(maxsize=_COMPILED_MAX)
def _cached(canonical_text: str) -> CompiledSchema:
    return CompiledSchema(canonicalize(canonical_text, bytes_max=8 * SCHEMA_BYTES_MAX))


def _compiled(schema: Any) -> jsonschema_rs.Draft202012Validator:
    if not isinstance(schema, dict | bool):
        raise SchemaRefused("a schema is an object or a boolean")
    places = list(_schemas(schema, []))
    for node, path in places:
        _check_members(node, path)
    if isinstance(schema, dict):
        _InPlace(schema, [node for node, _ in places]).check()
    try:
        return jsonschema_rs.Draft202012Validator(
            schema,
            validate_formats=True,
            ignore_unknown_formats=True,
            retriever=_refuse_retrieval,
            pattern_options=_PATTERNS,
            mask="the value",
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        path = list(error.instance_path) if isinstance(error, jsonschema_rs.ValidationError) else []
        raise SchemaRefused(_cut(getattr(error, "message", str(error))), pointer(path)) from None


def _refuse_retrieval(uri: str, /) -> NoReturn:
    raise ValueError("a reference may not leave the schema")


def _schemas(node: Any, path: list[str | int]) -> Iterator[tuple[dict[str, Any], list[str | int]]]:
    """Every place where a schema may stand, unknown keywords included, and no place where data stands."""
    if not isinstance(node, dict):
        return
    yield node, path
    for name, member in node.items():
        if name in _DATA:
            continue
        if isinstance(member, list):
            for index, child in enumerate(member):
                yield from _schemas(child, [*path, name, index])
        elif name in _MAPS and isinstance(member, dict):
            for key, child in member.items():
                yield from _schemas(child, [*path, name, key])
        else:
            yield from _schemas(member, [*path, name])


def _check_members(node: dict[str, Any], path: list[str | int]) -> None:
    """Refuse other dialects, own base addresses and references that leave."""
    dialect = node.get("$schema", DIALECT)
    if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
        raise SchemaRefused(f"$schema must be {DIALECT}", pointer([*path, "$schema"]))
    for name in _REFERENCES:
        target = node.get(name, "#")
        if not isinstance(target, str) or not target.startswith("#"):
            raise SchemaRefused(f"{name} must stay within the schema: '#…'", pointer([*path, name]))
    if path and "$id" in node:
        raise SchemaRefused("$id below the root would move the base of '#'", pointer([*path, "$id"]))


class _InPlace:
    """Counts how often one place of the input may be visited: `$ref` and the combining keywords stay at the same place.

    Two references in an allOf, thirty levels deep, are a billion visits; a reference that reaches itself without
    descending into the input never ends.
    """

    def __init__(self, root: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
        self._root = root
        self._nodes = {id(node): node for node in nodes}
        self._anchors = {
            anchor: node for node in nodes for name in _ANCHORS if isinstance(anchor := node.get(name), str)
        }
        self._steps: dict[int, int] = {}
        self._open: set[int] = set()

    def check(self) -> None:
        for node in self._nodes.values():
            if self._count(node) > _STEPS_IN_PLACE_MAX:
                raise SchemaRefused(
                    f"combines more than {_STEPS_IN_PLACE_MAX} schemas at one place of the value"
                )

    def _count(self, node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        key = id(node)
        if key in self._steps:
            return self._steps[key]
        if key in self._open:
            raise SchemaRefused("a reference leads back to itself without descending into the value")
        self._open.add(key)
        self._steps[key] = steps = 1 + sum(self._count(child) for child in self._children(node))
        self._open.remove(key)
        return steps

    def _children(self, node: dict[str, Any]) -> Iterator[Any]:
        for name in _REFERENCES:
            if isinstance(target := node.get(name), str):
                found = self._target(target)
                if isinstance(found, dict) and id(found) not in self._nodes:
                    raise SchemaRefused(f"{name} must point at a schema, not at data")
                yield found
        for name in _IN_PLACE_ONE:
            yield node.get(name)
        for name in _IN_PLACE_MANY:
            if isinstance(group := node.get(name), list):
                yield from group
        if isinstance(dependent := node.get("dependentSchemas"), dict):
            yield from dependent.values()

    def _target(self, reference: str) -> Any:
        fragment = unquote(reference[1:])
        if not fragment.startswith("/"):
            return self._anchors.get(fragment) if fragment else self._root
        node: Any = self._root
        for step in fragment[1:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(step)
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node


def _first_error(validator: jsonschema_rs.Draft202012Validator, value: Any) -> jsonschema_rs.ValidationError:
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return error
    raise AssertionError("a value is valid and is not")


def _large(value: Any) -> bool:
    open_nodes, count = [value], 0
    while open_nodes:
        node = open_nodes.pop()
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        count += len(children)
        if count > _NODES_FOR_ALL_ERRORS_MAX:
            return True
        open_nodes.extend(children)
    return False


def _violation(error: jsonschema_rs.ValidationError) -> Violation:
    rule = error.kind.name
    message = error.message
    if rule in ("additionalProperties", "unevaluatedProperties", "propertyNames"):
        # Here the message quotes names that the caller chose; they may be secrets put in the wrong place.
        count = len(getattr(error.kind, "unexpected", ())) or 1
        unknown = f"{count} member(s) that the schema does not know"
        message = "a member name does not fit" if rule == "propertyNames" else unknown
    return Violation(path=pointer(list(error.instance_path)), rule=rule, message=_cut(message))


def _cut(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= MESSAGE_LENGTH_MAX else line[: MESSAGE_LENGTH_MAX - 1] + "…"
