"""Requests by dice: wild all over, good but for one value, or bytes that are hardly a request. Alike for alike dice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.hostile.good_requests import GOOD
from tests.rpc.support import ACTION_ID, SERVICES

METHODS = {
    f"/{service.full_name}/{method.name}": method.input_type
    for service in SERVICES
    for method in service.methods
}

TEXTS = (
    "",
    "\x00",
    "a\x00b",
    ACTION_ID,
    "hostile.echo",
    "hostile.order",
    "hostile.any",
    "{}",
    '{"text":"a"}',
    '{"$ref":"file:///etc/passwd"}',
    "k",
    "1",
    "permit (principal, action, resource);",
    "'; drop table actions; --",
    "%s%n",
    "\u202e\u2066",
    "\U0010ffff",
    "a" * 300,
    "√" * 5000,
    "[" * 3000,
)
JSONS = (
    "[" * 150_000 + "]" * 150_000,
    '{"a":' * 50 + "1" + "}" * 50,
    '{"text":"\\ud800"}',
    '{"text":"\\u0000"}',
    '{"text":"a","text":"b"}',
    '{"text":1e999}',
    f'{{"text":{"9" * 5000}}}',
    '{"text":-0.0}',
    '{"text":NaN}',
    "\ufeff{}",
    '"' + "\u202e" * 400 + '"',
    '{"__proto__":{},"constructor":null}',
    '{"type":"object","properties":{"a":{"pattern":"(a+)+$"}}}',
    '{"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}',
    '{"text":"' + "x" * 1_500_000 + '"}',
)
CEDARS = (
    "permit(principal, action, resource) when { " + "(" * 4000 + "true" + ")" * 4000 + " };",
    "permit(principal, action, resource) when { " + "!" * 5000 + "true };",
    "permit(principal, action, resource) when { " + " && ".join(["true"] * 5000) + " };",
    "permit(principal, action, resource) when { context.input.a.b.c.d == 9223372036854775808 };",
    'permit(principal == ?principal, action, resource) unless { "\\u{202e}" like "*" };',
    '@id("a") @id("a") permit(principal, action, resource);',
    '@approval("17 of role:a; ttl=99999999999d") permit(principal, action, resource);',
    "permit(principal, action, resource);" * 1001,
    'forbid(principal is User in Role::"\\0", action, resource) when { principal has "" };',
    "// " + "c" * 200_000,
)
TERMS = (
    "1 of role:approver; ttl=4h",
    "0 of role:a",
    "99999999999999999999 of role:a",
    " and ".join(["1 of role:a"] * 17),
    "(" * 500 + "1 of role:a" + ")" * 500,
    "1 of user:" + '"\\u0000\\ud800"',
    "1 of role:a; ttl=9999999999999999d; ttl=1s",
    "1 of role:a; material=/a~2,//,/\u202e",
    "1 of role:a; escalate=role:b after 0s",
    "1 of " + ",".join(f"role:r{n}" for n in range(400)),
)
BY_ENDING = {"json": JSONS, "cedar": CEDARS, "approval": TERMS}
TIMES = (0, 1, -1, 10**9, 253402300800, 2**63 - 1, -(2**63))
NUMBERS: dict[int, Sequence[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -1, 50, 1000, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: TIMES,
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 3, 99, -1, 2**31 - 1),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -0.0, 1.5, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1.8e308),
}
SURROGATE = "\ue000"

Known = Mapping[str, Sequence[str]]


class Dice:
    """`known`: texts that mean something here, by the name of their field."""

    def __init__(self, seed: str, known: Known | None = None) -> None:
        self.random = Random(seed)
        self._known = known or {}

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def text(self, field: str = "") -> str:
        known = self._known.get(field)
        if known and self.chance(0.6):
            return self.random.choice(known)
        special = BY_ENDING.get(field.rpartition("_")[2])
        if special and self.chance(0.4):
            return self.random.choice(special)
        if self.chance(0.3):
            return "".join(map(self._character, range(self.random.randrange(40))))
        return self.random.choice(TEXTS)

    def _character(self, _: int) -> str:
        code = self.random.choice((0x7F, 0x800, 0xD800, 0x10FFFF))
        return (
            chr(self.random.randrange(code)) if code <= 0xD800 else chr(self.random.randrange(0xE000, code))
        )

    def request(self, path: str, good: Message | None = None) -> Message:
        """Wild all over, or good but for one value. `good`: instead of our own."""
        wild = self.message(METHODS[path])
        good = good or GOOD.get(path.rpartition("/")[2])
        if good is None or self.chance(0.5):
            return wild
        made: Message = GetMessageClass(METHODS[path])()
        made.CopyFrom(good)
        self._graft(made, wild)
        return made

    def message(self, descriptor: Descriptor, depth: int = 0) -> Message:
        message: Message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            # Shallow fields are mostly there, so that the bounds within are met.
            if self.random.randrange(10) < 3 + depth:
                continue
            value = getattr(message, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                value.update({self.text(): self.text() for _ in range(self.random.randrange(4))})
            elif field.is_repeated:
                for _ in range(self.random.randrange(4)):
                    value.append(
                        self.message(field.message_type, depth + 1)
                        if field.message_type is not None
                        else self.scalar(field)
                    )
            elif field.message_type is not None:
                value.CopyFrom(self.message(field.message_type, depth + 1))
            else:
                setattr(message, field.name, self.scalar(field))
        return message

    def scalar(self, field: FieldDescriptor) -> Any:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self.random.randbytes(self.random.choice((0, 1, 16, 40_000)))
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return self.text(field.name)
        return self.random.choice(NUMBERS[field.cpp_type])

    def _graft(self, good: Message, wild: Message) -> None:
        """Replaces one value, somewhere within the good request, by the wild one's."""
        wild_fields = [field for field, _ in wild.ListFields()]
        if not wild_fields:
            return
        field = self.random.choice(wild_fields)
        if field.message_type is not None and not field.is_repeated and good.HasField(field.name):
            self._graft(getattr(good, field.name), getattr(wild, field.name))
            return
        good.ClearField(field.name)
        if field.is_repeated or field.message_type is not None:
            getattr(good, field.name).MergeFrom(getattr(wild, field.name))
        else:
            setattr(good, field.name, getattr(wild, field.name))

    def raw(self, request: bytes) -> bytes:
        """Bytes that began as a request."""
        dice = self.random
        match dice.randrange(9):
            case 0:
                flipped = bytearray(request or b"\x0a")
                for _ in range(dice.randint(1, 8)):
                    flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
                return bytes(flipped)
            case 1:
                return request[: dice.randrange(len(request) + 1)]
            case 2:
                place = dice.randrange(len(request) + 1)
                return request[:place] + dice.randbytes(dice.randint(1, 9)) + request[place:]
            case 3:
                return request[:20_000] * dice.randint(2, 50)
            case 4:
                return dice.randbytes(dice.choice((1, 2, 10, 200, 100_000)))
            case 5:
                # Unknown fields, groups that nothing ends, wire types that there are not.
                return request + dice.choice(
                    (b"\xf2\xff\xff\xff\x0f\x01a", b"\x0b" * 300, b"\x0f", b"\x00\x01")
                )
            case 6:
                # Longer than all there is; and a varint without an end.
                return request + dice.choice((b"\x0a\xff\xff\xff\xff\x07", b"\x08" + b"\xff" * 20))
            case 7:
                nested = b""
                for _ in range(dice.choice((20, 99, 101, 500))):
                    nested = bytes((dice.randint(1, 12) << 3 | 2,)) + _varint(len(nested)) + nested
                return nested
        return self._with_surrogates(request)

    def _with_surrogates(self, request: bytes) -> bytes:
        """As UTF-8 may not have them, of the same length."""
        letters = [place for place, byte in enumerate(request[:2000]) if chr(byte).isalpha()]
        spoiled = bytearray(request)
        for place in self.random.sample(letters, min(len(letters), 2)):
            spoiled[place : place + 3] = b"\xed\xa0\x80"[: len(spoiled) - place]
        return bytes(spoiled)

    def metadata(self, token: str) -> list[tuple[str, str | bytes]]:
        """The caller's, and what nobody should say beside it."""
        dice = self.random
        said: list[tuple[str, str | bytes]] = [("authorization", f"Bearer {token}")]
        for _ in range(dice.randint(1, 4)):
            said += dice.choice(METADATA)
        if self.chance(0.1):
            dice.shuffle(said)
        return said


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


_ID, _TIME = "placet-message-id", "placet-message-time"
METADATA: Sequence[Sequence[tuple[str, str | bytes]]] = (
    [(_ID, "m-1"), (_TIME, "2030-01-31T12:00:00Z")],
    [(_ID, "m-1"), (_ID, "m-2"), (_TIME, "2030-01-31T12:00:00Z")],
    [(_ID, "m-1"), (_TIME, "2026-02-30T25:61:61Z")],
    [(_ID, "m-1"), (_TIME, "0001-01-01T00:00:00Z")],
    [(_ID, "m-1"), (_TIME, "9999-12-31T23:59:59.999999Z")],
    [(_ID, "'; drop table messages; --"), (_TIME, "now")],
    [(_ID, "a" * 5000)],
    [(_ID, ""), (_TIME, "")],
    [(_TIME, "2030-01-31T12:00:00Z")],
    [("authorization", "Bearer x")],
    [("authorization", "")],
    [("authorization", "Basic YTpi")],
    [("authorization", "Bearer " + "." * 4000)],
    [("traceparent", "00-" + "f" * 32 + "-" + "0" * 16 + "-ff")],
    [("traceparent", "00-" + "0" * 5000), ("tracestate", "=,=," * 500)],
    [("tracestate", "a=b"), ("traceparent", "%00")],
    [("grpc-status-details-bin", b"\xff\x00\xfe")],
    [("placet-action-id", ACTION_ID), ("placet-outcome", "{}"), ("placet-reason", "OK")],
    [("x-tenant", "globex"), ("tenant", "-"), ("placet-tenant", "acme")],
    [("some-bin", bytes(range(256)) * 8)],
    [(f"x-{n}", "v") for n in range(60)],
    [("user-agent", "x"), ("content-type", "text/html")],
    [("grpc-accept-encoding", "nope"), ("accept-language", "*")],
)
