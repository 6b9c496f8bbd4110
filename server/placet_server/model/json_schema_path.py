"""Whether a schema foresees a place: finds pointers that were misspelt."""

from collections.abc import Iterator
from typing import Any

_BRANCHES = ("allOf", "anyOf", "oneOf")
_BRANCH = ("then", "else")


def foresees(schema: Any, pointer: str) -> bool:
    """Whether a JSON Pointer, `*` for any element, leads where the schema names something or leaves all open.

    Stricter than what the schema allows: an object that names its members has no others, unless it says which.
    """
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    return _has(schema, steps, schema) is not False


def _has(node: Any, steps: list[str], root: Any) -> bool | None:
    """None: it does not say."""
    if isinstance(node, bool) or not isinstance(node, dict):
        return None if node else False
    if not steps:
        return True
    said = [_members_have(node, steps, root)]
    said += [_has(branch, steps, root) for branch in _branches(node, root)]
    if any(said):
        return True
    return None if all(each is None for each in said) else False


def _branches(node: dict[str, Any], root: Any) -> Iterator[Any]:
    for name in _BRANCHES:
        yield from node.get(name, ())
    for name in _BRANCH:
        if name in node:
            yield node[name]
    yield from node.get("dependentSchemas", {}).values()
    if isinstance(target := node.get("$ref"), str):
        yield _resolved(root, target)


def _members_have(node: dict[str, Any], steps: list[str], root: Any) -> bool | None:
    kinds = node.get("type", "object")
    if not {"object", "array"} & set([kinds] if isinstance(kinds, str) else kinds):
        return False
    children = _children(node, steps[0])
    if children is None:
        return None
    return any(_has(child, steps[1:], root) is not False for child in children)


def _children(node: dict[str, Any], step: str) -> list[Any] | None:
    """None if the node says nothing about what is within it."""
    properties = node.get("properties", {})
    found = list(properties.values()) if step == "*" else [properties[step]] if step in properties else []
    found += node.get("patternProperties", {}).values()
    for name in ("additionalProperties", "unevaluatedProperties"):
        if node.get(name, False) is not False:
            found.append(node[name])
    if step == "*" or step.isdecimal():
        found += node.get("prefixItems", ())
        found += [node[name] for name in ("items", "contains", "unevaluatedItems") if name in node]
    stated = ("properties", "patternProperties", "additionalProperties", "items", "prefixItems")
    return found if any(name in node for name in stated) else None


def _resolved(root: Any, target: str) -> Any:
    """True, which leaves all open, for what is no pointer within the schema."""
    node = root
    if target != "#" and not target.startswith("#/"):
        return True
    for step in target.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return True
    return node
