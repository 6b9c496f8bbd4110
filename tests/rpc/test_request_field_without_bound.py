"""Whatever a caller may send has a bound in the contract, so that none is left to a handler's care."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from buf.validate import validate_pb2
from tests.rpc.support import SERVICES

REQUESTS = {method.input_type.full_name: method.input_type for s in SERVICES for method in s.methods}
# Messages of Google's own with a value that can be out of bounds; all others are looked into.
VALUES = ("google.protobuf.Timestamp", "google.protobuf.Duration")


def unbounded(message: Any, seen: set[str]) -> Iterator[str]:
    """Fields without a rule, in this message and those within it. The rules of a map are its field's."""
    if message.full_name in seen or message.GetOptions().map_entry:
        return
    seen.add(message.full_name)
    for field in message.fields:
        inner = field.message_type
        is_looked_into = inner is not None and inner.full_name not in VALUES
        is_bounded = field.GetOptions().HasExtension(validate_pb2.field)
        is_free = field.cpp_type == field.CPPTYPE_BOOL or (is_looked_into and not field.is_repeated)
        if not (is_bounded or is_free):
            yield f"{message.full_name}.{field.name}"
        if is_looked_into:
            yield from unbounded(inner, seen)


@pytest.mark.parametrize("request_", REQUESTS)
def test_every_field_of_a_request_has_a_bound(request_: str) -> None:
    assert [] == list(unbounded(REQUESTS[request_], set()))
