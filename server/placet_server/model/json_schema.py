"""JSON Schema 2020-12, compiled once: nothing is fetched, patterns run in linear time, findings carry no
values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import jsonschema_rs

from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge
from placet_server.model.json_exact import pointer
from placet_server.model.json_schema_cost import DATA, MAPS, REFERENCES, SchemaCost, SchemaTooCostly
from placet_server.model.json_text import CanonicalJson, canonicalize

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_BYTES_MAX = 256 * 1024
VIOLATIONS_MAX = 16
MESSAGE_LENGTH_MAX = 256

# Visits that explaining may take, at most some 50 µs each. A failing value beyond that is refused without saying where.
_VISITS_MAX = 16384
_COMPILED_MAX = 2048

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

    __slots__ = ("_cost", "_is_valid", "_validator", "source")

    def __init__(self, source: CanonicalJson) -> None:
        self.source = source
        self._cost = _checked(source.value)
        self._validator = _compiled(source.value)
        self._is_valid = self._validator.is_valid

    def violations(self, value: Any) -> tuple[Violation, ...]:
        """The first 16 violations by path and rule; empty if the value fits.

        One of rule "schema" at the root, if to say more would take too long.
        """
        if self._is_valid(value):
            return ()
        if self._is_dear(value):
            message = "does not fit the schema, and is too large or too deep to say where"
            return (Violation(path="", rule="schema", message=message),)
        found = {_violation(error) for error in self._validator.iter_errors(value)}
        return tuple(sorted(found, key=lambda v: (v.path, v.rule, v.message))[:VIOLATIONS_MAX])

    def _is_dear(self, value: Any) -> bool:
        level, nodes, depth = [value], 1, 0
        while level:
            level = [child for node in level for child in _elements(node)]
            nodes += len(level)
            depth += 1
            if nodes > _VISITS_MAX:
                return True
        return self._cost is not None and nodes * self._cost.explaining(depth) > _VISITS_MAX


def compile_schema(text: str) -> CompiledSchema:
    """Compile a schema; equal schemas share one compilation. The empty text allows any JSON.

    Raises SchemaRefused: not strict JSON, larger than 256 KiB, another dialect, a reference that leaves the
    schema or leads back to itself, applicators that multiply, a pattern that needs backtracking."""
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


def _checked(schema: Any) -> SchemaCost | None:
    """What the schema costs; None for a boolean."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        raise SchemaRefused("a schema is an object or a boolean")
    places = list(_schemas(schema, []))
    for node, path in places:
        _check_members(node, path)
    cost = SchemaCost(schema, [node for node, _ in places])
    try:
        cost.check()
    except SchemaTooCostly as error:
        raise SchemaRefused(str(error)) from None
    return cost


def _elements(node: Any) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()


def _compiled(schema: Any) -> jsonschema_rs.Draft202012Validator:
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
        if name in DATA:
            continue
        if isinstance(member, list):
            for index, child in enumerate(member):
                yield from _schemas(child, [*path, name, index])
        elif name in MAPS and isinstance(member, dict):
            for key, child in member.items():
                yield from _schemas(child, [*path, name, key])
        else:
            yield from _schemas(member, [*path, name])


def _check_members(node: dict[str, Any], path: list[str | int]) -> None:
    """Refuse other dialects, own base addresses and references that leave."""
    dialect = node.get("$schema", DIALECT)
    if not isinstance(dialect, str) or dialect.removesuffix("#") != DIALECT:
        raise SchemaRefused(f"$schema must be {DIALECT}", pointer([*path, "$schema"]))
    for name in REFERENCES:
        target = node.get(name, "#")
        if not isinstance(target, str) or not target.startswith("#"):
            raise SchemaRefused(f"{name} must stay within the schema: '#…'", pointer([*path, name]))
    if path and "$id" in node:
        raise SchemaRefused("$id below the root would move the base of '#'", pointer([*path, "$id"]))


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
