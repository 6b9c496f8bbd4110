"""The driver's connection, which here knows arrays of built-in types by itself.

The driver asks each server on each connection what such an array is made of, by a question that costs Postgres some
twenty milliseconds to plan: more than all else of a connection. The numbers of built-in types are the same in every
release of Postgres. Whatever is not among them is asked for as ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import asyncpg

if TYPE_CHECKING:
    _Base = asyncpg.Connection[asyncpg.Record]
else:
    _Base = asyncpg.Connection

# By the array's number: its element's number and name.
ARRAYS = {
    1000: (16, "bool"),
    1001: (17, "bytea"),
    1007: (23, "int4"),
    1016: (20, "int8"),
    1022: (701, "float8"),
    1185: (1184, "timestamptz"),
    2951: (2950, "uuid"),
    3807: (3802, "jsonb"),
}


class _Unasked(NamedTuple):
    """In the place of the statement that the question would have been: no other has gone because of it."""

    name: str


class DriverConnection(_Base):
    async def _introspect_types(self, typeoids: Iterable[int], *rest: Any) -> Any:
        numbers = list(typeoids)
        if any(number not in ARRAYS for number in numbers):
            return await super()._introspect_types(numbers, *rest)  # type: ignore[misc]
        return [_described(number) for number in numbers], _Unasked("built-in")


def _described(number: int) -> dict[str, Any]:
    """As `pg_type` has it."""
    element, name = ARRAYS[number]
    return {
        "oid": number,
        "ns": "pg_catalog",
        "name": f"_{name}",
        "kind": b"b",
        "elemtype": element,
        "elemdelim": b",",
        "basetype": None,
        "range_subtype": None,
        "attrtypoids": None,
        "attrnames": None,
    }
