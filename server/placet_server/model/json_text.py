"""JSON as it travels: strict I-JSON (RFC 7493) in, its RFC 8785 form out.

A document is parsed once and replaced by its canonical text. Two paths give the same bytes or the same refusal: the
fast one lets orjson do everything and is taken only when nothing in the text could make orjson differ from the
standards; the exact one reads with the standard library, looks at every node, and names the place of what it refuses.
"""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from itertools import accumulate
from math import isfinite
from typing import Any, NoReturn

import orjson
import rfc8785

from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge

DEPTH_MAX = 64
# Beyond it neighbouring integers share a double (RFC 7493, 2.2).
INTEGER_MAX = 2**53 - 1

# Below this orjson and RFC 8785 choose the exponent form at different sizes.
_TINY = 1e-4

# What is left of a text when only numbers are looked at: their characters, quotes, one sign for all that precedes them.
_NUMERIC = bytes.maketrans(b",[E", b"::e")
_NOT_NUMERIC = bytes(set(range(256)) - set(b'0123456789.-eE:,["'))
# Numbers whose canonical form, or whose exactness, orjson does not decide as RFC 8785 does: 16 digits or more,
# exponents, trailing .0, very small ones, -0. A match inside a string costs time, not truth.
_DOUBTFUL_NUMBER = re.compile(
    rb":[-0-9](?:[0-9.]{15}|[0-9]*(?:\.[0-9]+)?e|[0-9]*\.0+(?![0-9])|(?<=0)\.000|(?<=-)0(?:\.000|(?!\.)))"
)
# Non-BMP characters sort differently in UTF-16; noncharacters are refused.
_DOUBTFUL_CHARACTER = re.compile("[\ufdd0-\ufdef\ufffe\uffff\U00010000-\U0010ffff]")
_REFUSED_CHARACTER = re.compile(
    "[\x00\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
    + "".join(chr(plane + 0xFFFE) + chr(plane + 0xFFFF) for plane in range(0x10000, 0x110000, 0x10000))
    + "]"
)
# An unfinished string reaches to the end: a second try from within it would make the search quadratic.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalJson:
    """One JSON document: RFC 8785 text, the value it denotes, SHA-256 of the text's UTF-8 bytes.

    The value is shared, not copied: whoever changes it must copy it first.
    """

    text: str
    value: Any
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands in the parsed tree where the reader met what the walk then refuses by path."""

    problem: str


class _NotANumber(Exception):
    def __init__(self, literal: str) -> None:
        super().__init__(literal)
        self.literal = literal


def canonicalize(text: str | bytes, *, bytes_max: int, depth_max: int = DEPTH_MAX) -> CanonicalJson:
    """Parse strictly and return the canonical document.

    Raises PayloadTooLarge (UTF-8 bytes of the input), MalformedJson, JsonNotInteroperable. A number is refused unless
    its shortest double has exactly the written value, and an integer also beyond ±(2^53 - 1). Sources: RFC 7493, 8785.
    """
    if len(text) > bytes_max:
        raise PayloadTooLarge(bytes=len(text), bytes_max=bytes_max)
    text, raw = _decoded(text)
    if len(raw) > bytes_max:
        raise PayloadTooLarge(bytes=len(raw), bytes_max=bytes_max)
    # Counting brackets inside strings too errs on the side of the exact check.
    if raw.count(b"[") + raw.count(b"{") > depth_max and _depth(text) > depth_max:
        raise JsonNotInteroperable(problem=f"nested deeper than {depth_max} levels", path="")
    return _fast(text, raw) or _exact(text)


def canonicalize_value(value: object, *, bytes_max: int, depth_max: int = DEPTH_MAX) -> CanonicalJson:
    """Return the canonical document of a Python value made of dict, list, tuple, str, int, float, bool and None.

    Raises JsonNotInteroperable for anything else, NaN, infinities, integers beyond ±(2^53 - 1), keys that are no
    strings and excess depth; PayloadTooLarge by the canonical UTF-8 bytes.
    """
    walk = _Walk(depth_max)
    document = _emit(walk.checked(value), walk.beyond_orjson)
    if len(document.text) > bytes_max or len(document.text.encode()) > bytes_max:
        raise PayloadTooLarge(bytes=len(document.text.encode()), bytes_max=bytes_max)
    return document


def _decoded(text: str | bytes) -> tuple[str, bytes]:
    if isinstance(text, bytes):
        try:
            return text.decode(), text
        except UnicodeDecodeError as error:
            raise MalformedJson(detail="not valid UTF-8", offset=error.start) from None
    try:
        return text, text.encode()
    except UnicodeEncodeError as error:
        raise MalformedJson(detail="not valid UTF-8", offset=error.start) from None


def _depth(text: str) -> int:
    brackets = _STRING.sub("", text).encode().translate(None, _NOT_BRACKETS)
    return max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets), default=0)


def _fast(text: str, raw: bytes) -> CanonicalJson | None:
    """The document if orjson alone settles it, else None: neither a refusal nor an answer."""
    if (
        raw[:1] not in (b"{", b"[")
        or "\\u" in text
        or (not text.isascii() and _DOUBTFUL_CHARACTER.search(text))
        or _DOUBTFUL_NUMBER.search(raw.translate(_NUMERIC, _NOT_NUMERIC))
    ):
        return None
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    canonical = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    # A repeated member was dropped, and its colon with it.
    if canonical.count(b":") != raw.count(b":"):
        return None
    return CanonicalJson(text=canonical.decode(), value=value, digest=sha256(canonical).digest())


def _exact(text: str) -> CanonicalJson:
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
    # The depth is already known to be in bounds.
    walk = _Walk(len(text))
    return _emit(walk.checked(value), walk.beyond_orjson)


def _emit(value: Any, beyond_orjson: bool) -> CanonicalJson:
    canonical = rfc8785.dumps(value) if beyond_orjson else orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return CanonicalJson(text=canonical.decode(), value=value, digest=sha256(canonical).digest())


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
