"""Arrays of built-in types are known without a question to each server, and as it would answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from placet_server.store.connection import connect
from placet_server.store.driver import ARRAYS
from placet_server.store.queries import load_all
from tests.postgres import Database

VALUES: dict[str, list[Any]] = {
    "bool": [True, None, False],
    "bytea": [b"", b"\x00,{}"],
    "int4": [0, -(2**31)],
    "int8": [None, 2**63 - 1],
    "float8": [0.5, -1e300],
    "timestamptz": [datetime(2026, 7, 31, 23, 59, 59, 999999, UTC)],
    "uuid": [UUID(int=0), UUID(int=2**128 - 1)],
    "jsonb": ['{"a": [1, null]}', '"b,c"'],
}


async def test_no_query_of_ours_has_the_driver_ask(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def noted(connection: object, numbers: list[int], *rest: Any) -> Any:
        asked.extend(numbers)
        return await ask(connection, numbers, *rest)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", noted)
    connection = await connect(database.dsn)
    for query in (query for file in load_all() for query in file.values()):
        await connection.prepare(query.sql)
    assert [] == asked
    # So it is what the driver calls.
    await connection.fetchval("select '{}'::macaddr8[]")
    assert 1 == len(asked)
    await connection.close()


@pytest.mark.both_servers
async def test_each_is_what_the_server_says_it_is(database: Database) -> None:
    connection = await connect(database.dsn)
    rows = await connection.fetch(
        "select a.oid::int8 as oid, e.oid::int8 as element, e.typname::text as name, a.typname::text as array_name"
        " from pg_type a join pg_type e on e.oid = a.typelem"
        " where a.oid = any ($1::text[]::oid[]) and e.typdelim = ','",
        [str(number) for number in ARRAYS],
    )
    assert {number: (*each, f"_{each[1]}") for number, each in ARRAYS.items()} == {
        row["oid"]: (row["element"], row["name"], row["array_name"]) for row in rows
    }
    for name, values in VALUES.items():
        assert values == await connection.fetchval(f"select $1::{name}[]", values)
    assert sorted(VALUES) == sorted(name for _, name in ARRAYS.values())
    await connection.close()
