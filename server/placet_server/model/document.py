"""Frozen dataclasses as JSON documents and back: enums by value, sets sorted, approval terms by their text, nothing
unknown accepted unless that is wanted.

A number read back is a float where the field says so: canonical JSON writes 60.0 as 60.
"""

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from placet_server.model.approval import Terms
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.approval_text import format_terms, parse_terms

T = TypeVar("T")


class DocumentRefused(ValueError):
    """`path` names the member, as in `contract.limits`."""

    def __init__(self, problem: str, path: str) -> None:
        super().__init__(f"{path or 'document'}: {problem}")
        self.problem = problem
        self.path = path


def written(value: Any) -> Any:
    """The JSON value of a dataclass. Members that are None are left out."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Terms):
        return format_terms(value)
    if is_dataclass(value) and not isinstance(value, type):
        members = ((f.name, getattr(value, f.name)) for f in fields(value))
        return {name: written(member) for name, member in members if member is not None}
    if isinstance(value, frozenset):
        return sorted(written(element) for element in value)
    if isinstance(value, tuple):
        return [written(element) for element in value]
    return value


def read(kind: type[T], document: object, path: str = "", *, passes_over_unknown: bool = False) -> T:
    """The dataclass of a JSON value. `passes_over_unknown`: members that are unknown, at whatever depth. Raises
    DocumentRefused.
    """
    if not isinstance(document, dict):
        raise DocumentRefused("must be an object", path)
    hints = _hints(cast(Any, kind))
    if (unknown := sorted(set(document) - set(hints))) and not passes_over_unknown:
        raise DocumentRefused(f"unknown member {unknown[0]!r}", path)
    members = {
        name: _value(hints[name], member, _join(path, name), passes_over_unknown)
        for name, member in document.items()
        if name in hints
    }
    try:
        return kind(**members)
    except TypeError:
        missing = next((name for name in hints if name not in members), "")
        raise DocumentRefused("a required member is missing", _join(path, missing)) from None


def _value(hint: Any, value: Any, path: str, passes_over_unknown: bool) -> Any:
    if isinstance(hint, UnionType):
        inner = [option for option in get_args(hint) if option is not NoneType]
        return None if value is None else _value(inner[0], value, path, passes_over_unknown)
    if get_origin(hint) in (tuple, frozenset):
        return _elements(hint, value, path, passes_over_unknown)
    if hint is Terms:
        return _terms(value, path)
    if is_dataclass(hint):
        return read(hint, value, path, passes_over_unknown=passes_over_unknown)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            raise DocumentRefused(f"must be one of {', '.join(str(e.value) for e in hint)}", path) from None
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise DocumentRefused(f"must be a {hint.__name__}", path)
    return value


def _terms(value: Any, path: str) -> Terms:
    if type(value) is not str:
        raise DocumentRefused("must be the text of approval terms", path)
    try:
        return parse_terms(value)
    except TermsRefused as refused:
        raise DocumentRefused(str(refused), path) from None


def _elements(hint: Any, value: Any, path: str, passes_over_unknown: bool) -> Any:
    if not isinstance(value, list):
        raise DocumentRefused("must be an array", path)
    element = get_args(hint)[0]
    origin = get_origin(hint)
    return origin(
        _value(element, each, f"{path}[{index}]", passes_over_unknown) for index, each in enumerate(value)
    )


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
