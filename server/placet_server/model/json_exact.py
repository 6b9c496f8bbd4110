"""The exact reading of JSON: the standard library's parser, a look at every node, and the place of what
is refused.
"""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from math import isfinite
from typing import Any, NoReturn

from placet_server.model.errors import JsonNotInteroperable, MalformedJson

# Beyond it neighbouring integers share a double (RFC 7493, 2.2).
INTEGER_MAX = 2**53 - 1

# Below this orjson and RFC 8785 choose the exponent form at different sizes.
_TINY = 1e-4

_REFUSED_CHARACTER = re.compile(
    "[\x00\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(chr(plane + 0xFFFE) + chr(plane + 0xFFFF) for plane in range(0x10000, 0x110000, 0x10000))
    + "]"
)
# An unfinished string reaches to the end: a second try from within it would make the search quadratic.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_OPENING = ord("[")


def read_exactly(text: str) -> tuple[Any, bool]:
    """The value of a text whose depth is known to be in bounds, and whether only RFC 8785's own writer can
    write it.

    Raises MalformedJson, JsonNotInteroperable.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_fraction,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise MalformedJson(detail=error.msg, offset=error.pos) from None
    except _NotANumber as error:
        offset = _STRING.sub(lambda string: " " * len(string[0]), text).find(error.literal)
        raise MalformedJson(detail=f"{error.literal} is not JSON", offset=offset) from None
    return check_value(value, len(text))


def check_value(value: object, depth_max: int) -> tuple[Any, bool]:
    """The value as its canonical text would be read back, and whether only RFC 8785's own writer can write
    it.

    Raises JsonNotInteroperable.
    """
    walk = _Walk(depth_max)
    return walk.checked(value), walk.beyond_orjson


def raise_if_malformed(text: str) -> None:
    """Raises MalformedJson for what the standard library cannot read."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise MalformedJson(detail=error.msg, offset=error.pos) from None


def is_deeper(text: str, depth_max: int) -> bool:
    """Whether arrays and objects are nested deeper, without reading the text."""
    brackets = _STRING.sub("", text).encode().translate(_ONE_KIND, _NOT_BRACKETS)
    # Of balanced brackets each pass takes the innermost pairs away: as many passes as levels, at the speed
    # of C.
    left = brackets
    for _ in range(depth_max):
        before, left = left, left.replace(b"[]", b"")
        if not left:
            return False
        if len(left) == len(before):
            break
    depths = accumulate(1 if bracket == _OPENING else -1 for bracket in brackets)
    return any(depth > depth_max for depth in depths)


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands in the parsed tree where the reader met what the walk then refuses by path."""

    problem: str


class _NotANumber(Exception):
    def __init__(self, literal: str) -> None:
        super().__init__(literal)
        self.literal = literal


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return _Refused(f"duplicate member {_shown(name)}")
        seen.add(name)
    raise AssertionError("fewer members than pairs, yet none repeats")


def _integer(literal: str) -> int | _Refused:
    # The length is looked at first: reading a number of a million digits is quadratic.
    if len(literal) > 17 or abs(number := int(literal)) > INTEGER_MAX:
        return _Refused("an integer beyond 2^53 - 1; send it as a string")
    return number


def _fraction(literal: str) -> float | _Refused:
    number = float(literal)
    # Up to 15 digits a double carries every decimal fraction, away from the ends of its range.
    if len(literal) < 17 and 1e-290 < abs(number) < 1e290:
        return number
    if number == 0.0:
        exact = not any(digit in "123456789" for digit in re.split("[eE]", literal)[0])
    else:
        exact = isfinite(number) and Decimal(literal) == Decimal(repr(number))
    return number if exact else _Refused("a number that a double does not carry exactly; send it as a string")


def _constant(literal: str) -> NoReturn:
    raise _NotANumber(literal)


def _shown(name: str) -> str:
    return json.dumps(name if len(name) <= 64 else name[:64] + "…")


class _Walk:
    """Checks every node of one tree and returns it as its canonical text would be read back."""

    def __init__(self, depth_max: int) -> None:
        self.depth_max = depth_max
        self.beyond_orjson = False
        self._path: list[str | int] = []

    def checked(self, node: Any) -> Any:
        kind = type(node)
        if kind is str:
            self._check_text(node)
            return node
        if kind is dict:
            self._check_depth()
            return self._object(node)
        if kind is list or kind is tuple:
            self._check_depth()
            return self._array(node)
        if kind is int:
            if not -INTEGER_MAX <= node <= INTEGER_MAX:
                self._refuse("an integer beyond 2^53 - 1; send it as a string")
            return node
        if kind is float:
            return self._number(node)
        if kind is bool or node is None:
            return node
        self._refuse(node.problem if kind is _Refused else f"{kind.__name__} is not JSON")

    def _object(self, node: dict[Any, Any]) -> dict[str, Any]:
        members = {}
        for name, member in node.items():
            if type(name) is not str:
                self._refuse(f"a member name of type {type(name).__name__}")
            self._check_text(name)
            if not name.isascii() and max(name) > "\uffff":
                self.beyond_orjson = True
            self._path.append(name)
            members[name] = self.checked(member)
            self._path.pop()
        return members

    def _array(self, node: list[Any] | tuple[Any, ...]) -> list[Any]:
        elements = []
        for index, element in enumerate(node):
            self._path.append(index)
            elements.append(self.checked(element))
            self._path.pop()
        return elements

    def _number(self, node: float) -> float | int:
        if not isfinite(node):
            self._refuse("a number that is not finite")
        if abs(node) < 1e21 and node.is_integer():
            if abs(node) > INTEGER_MAX:
                self._refuse("an integer beyond 2^53 - 1; send it as a string")
            return int(node)
        if abs(node) < _TINY:
            self.beyond_orjson = True
        return node

    def _check_text(self, text: str) -> None:
        if text.isascii():
            if "\x00" in text:
                self._refuse("NUL in a string")
        elif found := _REFUSED_CHARACTER.search(text):
            code = ord(found.group())
            kind = (
                "NUL" if code == 0 else "a lone surrogate" if 0xD800 <= code <= 0xDFFF else "a noncharacter"
            )
            self._refuse(f"{kind} in a string")

    def _check_depth(self) -> None:
        if len(self._path) >= self.depth_max:
            self._path.clear()
            self._refuse(f"nested deeper than {self.depth_max} levels")

    def _refuse(self, problem: str) -> NoReturn:
        raise JsonNotInteroperable(problem=problem, path=pointer(self._path))


def pointer(path: list[str | int]) -> str:
    """The JSON Pointer (RFC 6901) of a path, cut at 256 characters; what no line should carry is escaped."""
    joined = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    shown = joined[:256] + ("…" if len(joined) > 256 else "")
    return (
        "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown)
        if not shown.isprintable()
        else shown
    )
