"""Whichever statement writes a batch, what it writes is the same; and a key changes hands only where one may."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from placet_server.store import instance, queries
from placet_server.store.batch import BatchWriter
from placet_server.store.batch_item import Admission, Written
from placet_server.store.clock import FixedClock
from placet_server.store.connection import ConnectionOptions, connect
from tests.postgres import Database
from tests.store import line

pytestmark = pytest.mark.both_servers

SQL = queries.load("action")
ADMITTING = ("admit", "admit_and_advance", "take_over_and_advance")
SUBMITTING = ("submit", "take_over_and_submit")
ADVANCING = ("advance", "admit_and_advance", "take_over_and_advance")
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
ID = "0190a0a0-0000-7000-8000-00000000000{}"
LEASE = "0190a0a0-0000-4000-8000-000000000002"
KEY = "ab" * 32


def admission(number: int, **changes: Any) -> Admission:
    document: dict[str, Any] = {
        "tenant": "acme",
        "action_id": ID.format(number),
        "capability": 'shop."order"',
        "version": "1",
        "contract_digest": "cd" * 32,
        "effect_class": "UNSAFE",
        "subject": "älice",
        "caller": "{}",
        "idempotency_key": "k",
        "key_digest": KEY,
        "key_ttl_seconds": 60.0,
        "input": "{}",
        "input_digest": "ef" * 32,
        "labels": "{}",
        "on_caller_gone": "CANCEL",
        "durability": "EPHEMERAL",
        "predecessor_id": None,
        "effect_marked": False,
        "effect_key_ttl_seconds": None,
        "attempts_max": 1,
        "lease_id": LEASE,
        "timeout_seconds": 9.0,
    }
    document |= changes
    return document  # type: ignore[return-value]


def success(number: int) -> dict[str, Any]:
    return {
        "tenant": "acme",
        "action_id": ID.format(number),
        "lease_id": LEASE,
        "state": "SUCCEEDED",
        "effect": "DONE",
        "output": "1",
        "event_type": "settled",
        "event_body": '{"kind":"SUCCEEDED"}',
    }


async def send(
    connection: Any, name: str, boot_id: str, admissions: Any = (), advances: Any = ()
) -> list[Any]:
    values: dict[str, Any] = {"now": NOW, "boot_id": boot_id}
    values |= {"admissions": orjson.dumps(admissions).decode(), "advances": orjson.dumps(advances).decode()}
    query = SQL[name]
    arguments = query.arguments(**{parameter: values[parameter] for parameter in query.parameters})
    return [tuple(record) for record in await connection.fetch(query.sql, *arguments)]


async def rows(connection: Any) -> list[Any]:
    """All there is, then deleted. The transaction that wrote an event is another each time."""
    found = []
    for table in ("actions", "events"):
        records = [dict(record) for record in await connection.fetch(f"table {table}")]
        found += [{name: value for name, value in row.items() if name != "written_xid"} for row in records]
        await connection.execute(f"delete from {table}")
    return found


async def open_boot(database: Database) -> tuple[Any, instance.Boot]:
    connection = await connect(database.dsn, ConnectionOptions(pinned_plans=True))
    boot = instance.this_boot("1")
    await instance.register(connection, boot)
    return connection, boot


async def test_every_statement_writes_the_same_rows_events_and_receipts(database: Database) -> None:
    connection, boot = await open_boot(database)
    lives = []
    for admit, advance in zip(ADMITTING, ADVANCING, strict=True):
        first = await send(connection, admit, boot.boot_id, admissions=[admission(1)])
        second = await send(connection, advance, boot.boot_id, advances=[success(1)])
        lives.append((first, second, await rows(connection)))
    await connection.close()
    assert [1, 2] == [written[0][1] for written in lives[0][:2]]
    assert 3 == len(lives[0][2])
    assert lives[0] == lives[1] == lives[2]


async def test_both_statements_that_submit_write_the_same(database: Database) -> None:
    connection, boot = await open_boot(database)
    lives = []
    for name in SUBMITTING:
        submissions = [line.row(1), line.row(2, delay_seconds=60.0)]
        written = sorted(await send(connection, name, boot.boot_id, admissions=submissions))
        lives.append((written, await rows(connection)))
        for places in ("queue_ready", "queue_delayed"):
            moved = await connection.fetchval(
                f"with gone as (delete from {places} returning 1) select count(*) from gone"
            )
            assert 1 == moved
    await connection.close()
    assert 2 == len(lives[0][0])
    assert lives[0] == lives[1]


async def test_the_writer_moves_a_key_on_to_a_submission(database: Database) -> None:
    connection, boot = await open_boot(database)
    await send(connection, "admit", boot.boot_id, admissions=[admission(1)])
    await send(connection, "advance", boot.boot_id, advances=[success(1)])
    await connection.execute("update actions set key_released = true")

    async def reconnect() -> Any:
        return connection

    writer = BatchWriter(connect=reconnect, boot_id=boot.boot_id, clock=FixedClock(NOW))
    heir = line.row(2, key_digest=KEY, predecessor_id=ID.format(1))
    futures = [writer.submit(each) for each in (line.row(3, key_digest=KEY), line.row(4))]  # type: ignore[arg-type]
    await writer._flush(writer._take())
    assert [True, False] == [future.result() is None for future in futures]
    futures = [writer.submit(each) for each in (heir, line.row(5))]  # type: ignore[arg-type]
    await writer._flush(writer._take())
    assert [False, False] == [future.result() is None for future in futures]
    holder = await connection.fetchval(
        "select action_id::text from actions where key_digest = decode($1, 'hex')", KEY
    )
    await connection.close()
    assert line.id_of(2) == holder


async def test_a_dead_boot_admits_nothing_and_frees_no_key_but_still_settles(database: Database) -> None:
    connection, boot = await open_boot(database)
    await send(connection, "admit", boot.boot_id, admissions=[admission(1)])
    await connection.execute("update instances set state = 'DEAD', dead_time = now()")
    assert 1 == len(await send(connection, "advance", boot.boot_id, advances=[success(1)]))
    await connection.execute("update actions set key_released = true")
    heir = admission(2, predecessor_id=ID.format(1))
    for name in ADMITTING:
        assert [] == await send(connection, name, boot.boot_id, admissions=[heir])
    for name in SUBMITTING:
        waiting = line.row(2, key_digest=KEY, predecessor_id=ID.format(1))
        assert [] == await send(connection, name, boot.boot_id, admissions=[waiting])
    assert [KEY] == [r[0] for r in await connection.fetch("select encode(key_digest, 'hex') from actions")]
    await connection.close()


async def test_the_writer_moves_a_key_on_in_a_batch_of_other_items(database: Database) -> None:
    connection, boot = await open_boot(database)
    clock = FixedClock(NOW)

    async def reconnect() -> Any:
        return connection

    writer = BatchWriter(connect=reconnect, boot_id=boot.boot_id, clock=clock)

    async def write(
        *, admit: tuple[Admission, ...] = (), advance: tuple[Any, ...] = ()
    ) -> list[Written | None]:
        futures = [*map(writer.admit, admit), *map(writer.advance, advance)]
        await writer._flush(writer._take())
        return [future.result() for future in futures]

    other = admission(2, key_digest=None, idempotency_key=None)
    assert None not in await write(admit=(admission(1), other))
    assert None not in await write(advance=(success(1),))
    heir = admission(3, predecessor_id=ID.format(1))
    assert [None] == await write(admit=(heir,))
    clock.advance(timedelta(seconds=61))
    assert [None] == await write(admit=(admission(3),))
    assert None not in await write(admit=(heir, admission(4, key_digest=None)), advance=(success(2),))
    holder = await connection.fetchval("select action_id::text from actions where key_digest is not null")
    await connection.close()
    assert ID.format(3) == holder
