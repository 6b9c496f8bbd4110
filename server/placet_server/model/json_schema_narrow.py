"""Whether a schema lets only values through that another one lets through, too.

A value fits if it fits each keyword: so it does, if each keyword of the other schema is implied. Where that cannot be
seen keyword by keyword (references, alternatives that differ, what depends on what was evaluated) the answer is no."""

from __future__ import annotations

from typing import Any

import orjson

# Without references nothing is meant by their names either.
_ANNOTATIONS = frozenset(
    {"$anchor", "$comment", "$defs", "$id", "$schema", "default", "deprecated", "description", "examples"}
    | {"readOnly", "title", "writeOnly"}
)
_REFERENCES = (b'"$ref":', b'"$dynamicRef":')
_LOWER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})
_UPPER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})
# Each says the same whatever stands beside it.
_ALONE = frozenset(
    {"allOf", "anyOf", "dependentRequired", "dependentSchemas", "format", "multipleOf", "not", "oneOf"}
    | {"pattern", "patternProperties", "prefixItems"}
)
_ABSENT = object()


def is_narrower(new: Any, old: Any) -> bool:
    """Every value that fits `new` fits `old`, as far as can be told. Both are schemas that compile."""
    both = _text([new, old])
    if any(reference in both for reference in _REFERENCES):
        return _same(new, old)
    return _narrower(new, old)


def _narrower(new: Any, old: Any) -> bool:
    if new is False or old is True or _same(new, old):
        return True
    if old is False:
        return False
    new = {} if new is True else new
    return all(_implied(keyword, new, old) for keyword in old.keys() - _ANNOTATIONS)


def _implied(keyword: str, new: dict[str, Any], old: dict[str, Any]) -> bool:
    value, given = old[keyword], new.get(keyword, _ABSENT)
    if keyword in _ALONE:
        return _same(given, value)
    if keyword in _LOWER:
        return given is not _ABSENT and given >= value
    if keyword in _UPPER:
        return given is not _ABSENT and given <= value
    match keyword:
        case "type":
            return given is not _ABSENT and _types(given) <= _types(value, widened=True)
        case "enum" | "const":
            return bool(_values(new)) and _values(new) <= _values({keyword: value})
        case "required":
            return set(value) <= set(new.get("required", ()))
        case "uniqueItems":
            return not value or given is True
        case "properties":
            return all(_narrower(_property(new, name), schema) for name, schema in value.items())
        case "additionalProperties":
            return _others_narrower(new, old)
        case "items":
            return "prefixItems" not in new.keys() | old.keys() and _narrower(new.get("items", True), value)
        case "propertyNames":
            return _narrower(new.get("propertyNames", True), value)
    return False


def _property(schema: dict[str, Any], name: str) -> Any:
    """What a member of that name has to fit, at the least."""
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    return True if "patternProperties" in schema else schema.get("additionalProperties", True)


def _others_narrower(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """What the older one says of members that it does not name."""
    if "patternProperties" in new.keys() | old.keys():
        return False
    known = old.get("properties", {})
    more = [schema for name, schema in new.get("properties", {}).items() if name not in known]
    rest = new.get("additionalProperties", True)
    return all(_narrower(schema, old["additionalProperties"]) for schema in (*more, rest))


def _types(given: str | list[str], *, widened: bool = False) -> set[str]:
    types = {given} if isinstance(given, str) else set(given)
    return types | {"integer"} if widened and "number" in types else types


def _values(schema: dict[str, Any]) -> set[bytes]:
    """Those that it names; none if it names none."""
    return {_text(value) for value in ([schema["const"]] if "const" in schema else schema.get("enum", ()))}


def _same(one: Any, other: Any) -> bool:
    """Python sees no difference between true and 1."""
    return bool(one == other) and _text(one) == _text(other)


def _text(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
