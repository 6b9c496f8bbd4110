"""JSON as it travels: strict I-JSON (RFC 7493) in, its RFC 8785 form out.

A document is parsed once and replaced by its canonical text. Two paths give the same bytes or the same
refusal: the fast one lets orjson do everything and is taken only when nothing in the text could make orjson
differ from the standards; the exact one reads with the standard library, looks at every node, and names the
place of what it refuses."""

import re
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
import rfc8785

from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge
from placet_server.model.json_exact import check_value, is_deeper, raise_if_malformed, read_exactly

DEPTH_MAX = 64
PLAIN_MEMBERS_MAX = 16
INTEGER_MAX = 2**53 - 1

# What is left of a text when only numbers are looked at: their characters, quotes, one sign for all that
# precedes them.
_NUMERIC = bytes.maketrans(b",[E", b"::e")
_NOT_NUMERIC = bytes(set(range(256)) - set(b'0123456789.-eE:,["'))
# Numbers whose canonical form, or whose exactness, orjson does not decide as RFC 8785 does: 16 digits or
# more, exponents, trailing .0, very small ones, -0. A match inside a string costs time, not truth.
_DOUBTFUL_NUMBER = re.compile(
    rb":[-0-9](?:[0-9.]{15}|[0-9]*(?:\.[0-9]+)?e|[0-9]*\.0+(?![0-9])|(?<=0)\.000|(?<=-)0(?:\.000|(?!\.)))"
)
# Non-BMP characters sort differently in UTF-16; noncharacters are refused.
_DOUBTFUL_CHARACTER = re.compile("[\ufdd0-\ufdef\ufffe\uffff\U00010000-\U0010ffff]")


class CanonicalJson(NamedTuple):
    """One JSON document: RFC 8785 text, the value it denotes, SHA-256 of the text's UTF-8 bytes.

    The value is shared, not copied: whoever changes it must copy it first.
    """

    text: str
    value: Any
    digest: bytes


def canonicalize(
    text: str | bytes, *, bytes_max: int, depth_max: int = DEPTH_MAX, field: str = "input_json"
) -> CanonicalJson:
    """Parse strictly and return the canonical document.

    Raises PayloadTooLarge (UTF-8 bytes of the input, and of the canonical text), MalformedJson,
    JsonNotInteroperable; each names `field`. A number is refused unless its shortest double has exactly the
    written value, and an integer also beyond ±(2^53 - 1). Sources: RFC 7493, 8785."""
    try:
        return _canonical(text, bytes_max, depth_max)
    except (PayloadTooLarge, MalformedJson, JsonNotInteroperable) as error:
        error.field = field
        raise


def canonicalize_value(
    value: object, *, bytes_max: int, depth_max: int = DEPTH_MAX, field: str = "output_json"
) -> CanonicalJson:
    """Return the canonical document of a Python value made of dict, list, tuple, str, int, float, bool and
    None.

    Raises JsonNotInteroperable for anything else, NaN, infinities, integers beyond ±(2^53 - 1), keys that
    are no strings and excess depth; PayloadTooLarge by the canonical UTF-8 bytes."""
    try:
        document = _plain(value) or _emit(*check_value(value, depth_max))
        _check_size(document, bytes_max)
    except (PayloadTooLarge, JsonNotInteroperable) as error:
        error.field = field
        raise
    return document


def _plain(value: object) -> CanonicalJson | None:
    """The document of a small, flat object of plain members, which is what most handlers return; else None."""
    if type(value) is not dict or len(value) > PLAIN_MEMBERS_MAX:
        return None
    for name, member in value.items():
        kind = type(member)
        is_number = kind is int and -INTEGER_MAX <= member <= INTEGER_MAX
        if type(name) is not str or not (is_number or kind is str or kind is bool or member is None):
            return None
    try:
        raw = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None
    if not raw.isascii() or b"\\u" in raw:
        return None
    return CanonicalJson(raw.decode(), value, sha256(raw).digest())


def _check_size(document: CanonicalJson, bytes_max: int) -> None:
    # A character has at most four bytes.
    if len(document.text) * 4 > bytes_max and (size := len(document.text.encode())) > bytes_max:
        raise PayloadTooLarge(bytes=size, bytes_max=bytes_max)


def _canonical(text: str | bytes, bytes_max: int, depth_max: int) -> CanonicalJson:
    if len(text) > bytes_max:
        raise PayloadTooLarge(bytes=len(text), bytes_max=bytes_max)
    text, raw = _decoded(text)
    if len(raw) > bytes_max:
        raise PayloadTooLarge(bytes=len(raw), bytes_max=bytes_max)
    # Counting brackets inside strings too errs on the side of the exact check.
    if raw.count(b"[") + raw.count(b"{") > depth_max and is_deeper(text, depth_max):
        raise JsonNotInteroperable(problem=f"nested deeper than {depth_max} levels", path="")
    document = _fast(text, raw)
    if document is None:
        document = _exact(text)
        # Here alone the text can have grown: 1e9 becomes 1000000000.
        _check_size(document, bytes_max)
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


def _fast(text: str, raw: bytes) -> CanonicalJson | None:
    """The document if orjson alone settles it, else None: neither a refusal nor an answer."""
    if (
        raw[:1] not in (b"{", b"[")
        or "\\u" in text
        or (not text.isascii() and _may_be_doubtful(raw) and _DOUBTFUL_CHARACTER.search(text))
        or _DOUBTFUL_NUMBER.search(raw.translate(_NUMERIC, _NOT_NUMERIC))
    ):
        return None
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise_if_malformed(text)
        return None
    canonical = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    # A repeated member was dropped, and its colon with it.
    if canonical.count(b":") != raw.count(b":"):
        return None
    return CanonicalJson(canonical.decode(), value, sha256(canonical).digest())


def _may_be_doubtful(raw: bytes) -> bool:
    """Whether a byte begins a character from U+F000 on. Looking for bytes is far cheaper than for characters."""
    return 0xEF in raw or 0xF0 in raw or 0xF1 in raw or 0xF2 in raw or 0xF3 in raw or 0xF4 in raw


def _exact(text: str) -> CanonicalJson:
    return _emit(*read_exactly(text))


def _emit(value: Any, beyond_orjson: bool) -> CanonicalJson:
    canonical = rfc8785.dumps(value) if beyond_orjson else orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return CanonicalJson(canonical.decode(), value, sha256(canonical).digest())
