"""Frozen dataclasses as JSON documents and back: enums by value, sets sorted, approval terms by their text, nothing
unknown accepted unless that is wanted.

A number read back is a float where the field says so: canonical JSON writes 60.0 as 60.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from placet_server.model.approval import Terms
from placet_server.model.approval_reader import TermsRefused
from placet_server.model.approval_text import format_terms, parse_terms

T = TypeVar("T")
# Of a value, and the path at which it stands.
_Reader = Callable[[Any, str], Any]


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
    readers = _members(cast(Any, kind), passes_over_unknown)
    if not passes_over_unknown and (unknown := sorted(set(document) - set(readers))):
        raise DocumentRefused(f"unknown member {unknown[0]!r}", path)
    members = {
        name: readers[name](member, _join(path, name)) for name, member in document.items() if name in readers
    }
    try:
        return kind(**members)
    except TypeError:
        missing = next((name for name in readers if name not in members), "")
        raise DocumentRefused("a required member is missing", _join(path, missing)) from None


@lru_cache(maxsize=128)
def _members(kind: Any, passes_over_unknown: bool) -> dict[str, _Reader]:
    """What reads each member of a dataclass."""
    hints = get_type_hints(kind)
    return {f.name: _reader(hints[f.name], passes_over_unknown) for f in fields(kind)}


def _reader(hint: Any, passes_over_unknown: bool) -> _Reader:
    """Chosen once for all values of a member."""
    if isinstance(hint, UnionType):
        some = _reader(next(o for o in get_args(hint) if o is not NoneType), passes_over_unknown)
        return lambda value, path: None if value is None else some(value, path)
    if get_origin(hint) in (tuple, frozenset):
        return partial(_elements, get_origin(hint), _reader(get_args(hint)[0], passes_over_unknown))
    if hint is Terms:
        return _terms
    if is_dataclass(hint):
        return partial(read, cast(Any, hint), passes_over_unknown=passes_over_unknown)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return partial(_enum, hint)
    return partial(_plain, hint)


def _plain(kind: type, value: Any, path: str) -> Any:
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise DocumentRefused(f"must be a {kind.__name__}", path)


def _enum(kind: type[Enum], value: Any, path: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise DocumentRefused(f"must be one of {', '.join(str(e.value) for e in kind)}", path) from None


def _terms(value: Any, path: str) -> Terms:
    if type(value) is not str:
        raise DocumentRefused("must be the text of approval terms", path)
    try:
        return parse_terms(value)
    except TermsRefused as refused:
        raise DocumentRefused(str(refused), path) from None


def _elements(kind: Any, read_element: _Reader, value: Any, path: str) -> Any:
    if not isinstance(value, list):
        raise DocumentRefused("must be an array", path)
    return kind([read_element(each, f"{path}[{index}]") for index, each in enumerate(value)])


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
