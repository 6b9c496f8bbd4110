import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from placet_server.model import json_text
from placet_server.model.errors import JsonNotInteroperable, MalformedJson, PayloadTooLarge
from placet_server.model.json_exact import check_value
from placet_server.model.json_text import canonicalize, canonicalize_value
from tests.examples import examples

MIB = 2**20


def canonical(text: str | bytes) -> str:
    return canonicalize(text, bytes_max=MIB).text


CANONICAL = [
    ("{}", "{}"),
    ("[]", "[]"),
    ("null", "null"),
    (' "a" ', '"a"'),
    ('{"b":1,"a":2}', '{"a":2,"b":1}'),
    ('{ "b" : [1, 2.5, true],\n"a" : {} }', '{"a":{},"b":[1,2.5,true]}'),
    ("[1.0]", "[1]"),
    ("[1.50]", "[1.5]"),
    ("[-0]", "[0]"),
    ("[-0.0]", "[0]"),
    ("[0e5,-0E-9]", "[0,0]"),
    ("[1e3,1E+3,1e-3]", "[1000,1000,0.001]"),
    ("[1e21,1e30]", "[1e+21,1e+30]"),
    ("[0.000001,0.0000001,1e-6,1.5e-6]", "[0.000001,1e-7,0.000001,0.0000015]"),
    ("[9007199254740991,-9007199254740991]", "[9007199254740991,-9007199254740991]"),
    ("[0.1,0.30000000000000004]", "[0.1,0.30000000000000004]"),
    ("[5e-324,1.7976931348623157e308]", "[5e-324,1.7976931348623157e+308]"),
    ('["\\u20ac\\/\\u000F\\u007f\\u00e9"]', '["€/\\u000f\x7fé"]'),
    ('["\\ud83d\\ude00"]', '["😀"]'),
    # UTF-16 order: the emoji's surrogates sort before U+FB33.
    ('{"\ufb33":1,"😀":2}', '{"😀":2,"\ufb33":1}'),
    ('{"at":"10: 1e5, 2.0, -0, 0.0001, 1234567890123456789"}', None),
    ('{"a:b":"c:d","c\\"e":"[{"}', '{"a:b":"c:d","c\\"e":"[{"}'),
    ("[" * 64 + "]" * 64, None),
    ('{"a":[' * 32 + "]}" * 32, None),
    ("[" + ",".join(["[[{}],[]]"] * 100) + "]", None),
]

NOT_INTEROPERABLE = [
    ('{"a":1,"a":2}', "duplicate member", ""),
    ('{"x":[{"a":1,"\\u0061":2}]}', "duplicate member", "/x/0"),
    ('{"a":{"b":1},"a":{"b":1}}', "duplicate member", ""),
    ('{"":1,"":1}', "duplicate member", ""),
    ('{"a~/b":["\\ud800"]}', "surrogate", "/a~0~1b/0"),
    ('["\\udc00\\ud800"]', "surrogate", "/0"),
    ('{"\\ud800":1}', "surrogate", ""),
    ('["\\u0000"]', "NUL", "/0"),
    ('{"\\u0000":1}', "NUL", ""),
    ('["é\\u0000"]', "NUL", "/0"),
    ('["\uffff"]', "noncharacter", "/0"),
    ('["\\ufdd0"]', "noncharacter", "/0"),
    ('["\U0001fffe"]', "noncharacter", "/0"),
    ("[1e400]", "double", "/0"),
    ("[1e-400]", "double", "/0"),
    ("[1e-99999999999999999999999]", "double", "/0"),
    ("[1e99999999999999999999999]", "double", "/0"),
    ("[9007199254740992]", "2^53", "/0"),
    ("[9007199254740993]", "2^53", "/0"),
    ("[-9007199254740993]", "2^53", "/0"),
    ("[18446744073709551616]", "2^53", "/0"),
    ("[9007199254740993.0]", "double", "/0"),
    ("[1e17]", "2^53", "/0"),
    ("[0.1234567890123456789]", "double", "/0"),
    ("[123456789.12345678901]", "double", "/0"),
    ("[" + "9" * 500_000 + "]", "2^53", "/0"),
    ("[0." + "3" * 500_000 + "]", "double", "/0"),
    ("[" * 65 + "]" * 65, "nested deeper", ""),
    ("[" * 100_000, "nested deeper", ""),
    ('{"a":[' * 32 + "[]" + "]}" * 32, "nested deeper", ""),
    ("[[" + "],[" * 500 + "[" * 64 + "]" * 64 + "]]", "nested deeper", ""),
    ('{"a":' * 100_000, "nested deeper", ""),
]

MALFORMED = [
    "",
    " ",
    "{",
    "nul",
    "[1,]",
    '{"a":1,}',
    "{'a':1}",
    '{"a" 1}',
    '{"a":1}x',
    "[01]",
    "[+1]",
    "[1.]",
    "[.5]",
    "[1e]",
    "[- 1]",
    "[NaN]",
    "[Infinity]",
    "[-Infinity]",
    '["a\nb"]',
    '["\x00"]',
    '["\\x41"]',
    '["\\u12"]',
    '["a',
    "\ufeff{}",
    "[1] // comment",
    b'{"a":"\xff"}',
    b'{"a":"\xed\xa0\x80"}',
    b"\xff\xfe[\x00]\x00",
    '"\ud800"',
]


@pytest.mark.parametrize(("text", "expected"), CANONICAL)
def test_a_document_becomes_its_canonical_form(text: str, expected: str | None) -> None:
    assert (text if expected is None else expected) == canonical(text)


@pytest.mark.parametrize(("text", "_"), CANONICAL)
def test_the_canonical_form_of_a_canonical_form_is_itself(text: str, _: str | None) -> None:
    once = canonicalize(text, bytes_max=MIB)
    assert once == canonicalize(once.text, bytes_max=MIB)
    assert once == canonicalize_value(once.value, bytes_max=MIB)


@pytest.mark.parametrize(("text", "problem", "path"), NOT_INTEROPERABLE)
def test_what_two_parsers_would_read_differently_is_refused_with_its_place(
    text: str, problem: str, path: str
) -> None:
    with pytest.raises(JsonNotInteroperable) as refused:
        canonicalize(text, bytes_max=MIB)
    assert problem in refused.value.problem
    assert path == refused.value.path


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_not_json_is_malformed(text: str | bytes) -> None:
    with pytest.raises(MalformedJson):
        canonicalize(text, bytes_max=MIB)


def test_a_canonical_text_above_the_limit_is_too_large() -> None:
    with pytest.raises(PayloadTooLarge) as refused:
        canonicalize("[" + "1e9," * 9 + "1e9]", bytes_max=50, field="input")
    assert (111, "input") == (refused.value.bytes, refused.value.field)


def test_a_malformed_document_says_where() -> None:
    with pytest.raises(MalformedJson) as refused:
        canonicalize('{"NaN":[NaN]}', bytes_max=MIB)
    assert 8 == refused.value.offset


@pytest.mark.parametrize(
    "text", ["[" + "1," * 5_000_000 + "1]", b"[" + b"1," * 5_000_000 + b"1]", "é" * 600_000]
)
def test_ten_megabytes_are_refused_before_they_are_read(text: str | bytes) -> None:
    with pytest.raises(PayloadTooLarge) as refused:
        canonicalize(text, bytes_max=MIB)
    assert MIB == refused.value.bytes_max


def test_brackets_and_escaped_quotes_within_strings_are_no_depth() -> None:
    text = '{"a":"' + '[{\\"[' * 1000 + '"}'
    assert text == canonical(text)


@pytest.mark.timeout(5)
def test_an_unfinished_string_of_escaped_quotes_is_refused_in_linear_time() -> None:
    with pytest.raises((MalformedJson, JsonNotInteroperable)):
        canonicalize("[" * 65 + '"' + '\\"' * 500_000, bytes_max=2 * MIB)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "finite"),
        ([math.inf], "finite"),
        ({1: "a"}, "member name"),
        ({None: "a"}, "member name"),
        (2**53, "2^53"),
        (-(2**53) - 1, "2^53"),
        (1e17, "2^53"),
        (b"bytes", "bytes is not JSON"),
        ({1, 2}, "set is not JSON"),
        (Decimal("1.5"), "Decimal is not JSON"),
        (object(), "object is not JSON"),
        ("\ud800", "surrogate"),
        (["a\x00"], "NUL"),
        ({"\udfff": 1}, "surrogate"),
    ],
)
def test_an_output_that_json_cannot_carry_is_refused(value: object, problem: str) -> None:
    with pytest.raises(JsonNotInteroperable) as refused:
        canonicalize_value(value, bytes_max=MIB)
    assert problem in refused.value.problem


def test_an_output_that_holds_itself_is_too_deep() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(JsonNotInteroperable):
        canonicalize_value(loop, bytes_max=MIB)


def test_an_output_above_its_limit_is_too_large() -> None:
    with pytest.raises(PayloadTooLarge) as refused:
        canonicalize_value("é" * 100, bytes_max=150)
    assert 202 == refused.value.bytes


def test_tuples_and_whole_floats_leave_as_json_reads_them_back() -> None:
    assert '{"a":[1,-0.5,0]}' == canonicalize_value({"a": (1.0, -0.5, -0.0)}, bytes_max=MIB).text


def judged(text: str, read: Callable[[str], str]) -> str:
    try:
        return "text " + read(text)
    except MalformedJson:
        return "malformed"
    except JsonNotInteroperable:
        return "not interoperable"


def reference(text: str) -> str:
    """Another reading of the same rules: the standard library's parser and rfc8785, with nothing of the product's."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise JsonNotInteroperable(problem="duplicate", path="")
        return dict(pairs)

    def number(literal: str) -> Any:
        double = float(literal)
        mantissa = re.split("[eE]", literal)[0]
        vanished = double == 0 and bool(set(mantissa) & set("123456789"))
        if math.isinf(double) or vanished or (double and Decimal(literal) != Decimal(repr(double))):
            raise JsonNotInteroperable(problem="number", path="")
        whole = double.is_integer() and (abs(double) < 1e21 or not set(".eE") & set(literal))
        if whole and abs(double) > 2**53 - 1:
            raise JsonNotInteroperable(problem="integer", path="")
        return double

    def constant(literal: str) -> Any:
        raise MalformedJson(detail=literal, offset=0)

    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=constant)
        value = json.loads(
            text, object_pairs_hook=members, parse_int=number, parse_float=number, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        raise MalformedJson(detail=error.msg, offset=error.pos) from None
    shown = json.dumps(value, ensure_ascii=False)
    if "\\u0000" in shown or any(
        0xD800 <= ord(c) <= 0xDFFF or 0xFDD0 <= ord(c) <= 0xFDEF or ord(c) & 0xFFFE == 0xFFFE for c in shown
    ):
        raise JsonNotInteroperable(problem="character", path="")
    return rfc8785.dumps(value).decode()


NUMBERS = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers().map(str),
)
STRINGS = st.one_of(
    st.text(max_size=8).map(lambda s: json.dumps(s, ensure_ascii=False)),
    st.text(st.characters(exclude_categories=()), max_size=8).map(json.dumps),
    st.sampled_from(['"a"', '"\\u0061"', '"10: 1e5, -0"', '"a:b"', '"\\/"', '"\\ud83d\\ude00"', '"\\ud800"']),
)
SPACE = st.sampled_from(["", " ", "\n\t"])


def nested(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arrays = st.tuples(st.lists(children, max_size=4), SPACE).map(
        lambda drawn: "[" + ("," + drawn[1]).join(drawn[0]) + "]"
    )
    members = st.tuples(STRINGS, SPACE, children).map(lambda drawn: drawn[0] + ":" + drawn[1] + drawn[2])
    objects = st.lists(members, max_size=4).map(lambda drawn: "{" + ", ".join(drawn) + "}")
    return st.one_of(arrays, objects)


DOCUMENTS = st.recursive(st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null"])), nested)


def compared(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    expected = judged(text, reference)
    assert expected == judged(text, canonical)
    assert expected == judged(text, lambda text: json_text._exact(text).text)


@examples(120, long=3000)
@given(DOCUMENTS)
def test_fast_path_exact_path_and_reference_agree_on_any_document(text: str) -> None:
    compared(text)


@examples(80, long=1500)
@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_fast_path_exact_path_and_reference_agree_on_any_numbers(numbers: list[str]) -> None:
    compared('{"n":[' + ",".join(numbers) + "]}")


@examples(80, long=1500)
@given(DOCUMENTS, st.integers(0, 60), st.sampled_from('{}[]",:\\ue0-.19 \x00n'))
def test_fast_path_exact_path_and_reference_agree_on_damaged_documents(text: str, at: int, sign: str) -> None:
    compared(text[:at] + sign + text[at + 1 :])


@pytest.mark.parametrize(
    "text",
    [t for t, _ in CANONICAL]
    + [t for t, problem, _ in NOT_INTEROPERABLE if len(t) < 1000 and problem != "nested deeper"]
    + [t for t in MALFORMED if isinstance(t, str)],
)
def test_fast_path_exact_path_and_reference_agree_on_the_tricky_ones(text: str) -> None:
    compared(text)


@given(
    st.dictionaries(
        st.text(max_size=4), st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4))
    )
)
def test_a_plain_output_is_written_as_the_exact_way_writes_it(value: dict[str, Any]) -> None:
    plain = json_text._plain(value)
    if plain is not None:
        assert json_text._emit(*check_value(value, 64)) == plain
