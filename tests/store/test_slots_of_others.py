"""Slots and starts of one capability and tenant are taken, charged or given back by another's, or by whom they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

from placet_server.store import slot
from placet_server.store.connection import Connection, connect
from placet_server.store.slot import Held
from tests.postgres import Database

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OURS = ("work.pack", "acme")
THEIRS = [("work.pack", "evil"), ("work.send", "acme")]


async def taken(connection: Connection) -> dict[tuple[str, str], list[int]]:
    rows = await connection.fetch(
        "select capability, tenant, array_agg(number order by number) from slots"
        " where lease_id is not null group by 1, 2"
    )
    return {(row[0], row[1]): row[2] for row in rows}


def holders(count: int) -> list[tuple[str, str]]:
    return [(str(uuid4()), str(uuid4())) for _ in range(count)]


async def test_slots_are_taken_and_given_back_by_their_own_alone(database: Database) -> None:
    connection = await connect(database.dsn)
    for name in (*THEIRS, OURS):
        await slot.ensure(connection, *name, 2)
    take = partial(slot.take, connection, count_max=2, now=NOW)
    held = await take(*OURS, holders=holders(3))
    assert {OURS: [1, 2]} == await taken(connection)
    theirs = [(await take(*name, holders=holders(1)))[0] for name in THEIRS]
    full = {OURS: [1, 2], THEIRS[0]: [1], THEIRS[1]: [1]}
    assert full == await taken(connection)

    first, other = held[0], str(uuid4())
    assert [True, False] == [
        await slot.holds(connection, each) for each in (first, first._replace(lease_id=other))
    ]
    await slot.release(connection, [first._replace(lease_id=other)])
    for capability, tenant in THEIRS:
        # Under our lease, which they do not have.
        await slot.release(connection, [Held(capability, tenant, first.number, first.lease_id)])
        await slot.release_lease(connection, capability, tenant, first.lease_id)
    assert full == await taken(connection)
    await slot.release(connection, [first])
    await slot.release_lease(connection, *OURS, held[1].lease_id)
    assert {theirs[0][:2]: [1], theirs[1][:2]: [1]} == await taken(connection)
    await connection.close()


async def test_a_contract_that_allows_fewer_than_before_has_no_more(database: Database) -> None:
    connection = await connect(database.dsn)
    await slot.ensure(connection, *OURS, 3)
    held = await slot.take(connection, *OURS, count_max=1, holders=holders(3), now=NOW)
    assert [1] == [each.number for each in held]
    await connection.close()


async def test_starts_are_charged_and_refunded_to_their_own_alone(database: Database) -> None:
    connection = await connect(database.dsn)
    for name in (*THEIRS, OURS):
        await slot.ensure_rate(connection, *name, 5.0, NOW)
    charge = partial(slot.charge, connection, rate_max=5.0, now=NOW)
    assert (5, 0) == (await charge(*OURS, wanted=9), await charge(*OURS, wanted=9))
    assert [4, 4] == [await charge(*name, wanted=4) for name in THEIRS]
    await slot.refund(connection, *OURS, 2)
    assert [2, 1, 1] == [await charge(*name, wanted=9) for name in (OURS, *THEIRS)]
    await connection.close()


async def test_a_start_that_is_charged_late_brings_no_time_back_that_was_spent(database: Database) -> None:
    connection = await connect(database.dsn)
    await slot.ensure_rate(connection, *OURS, 5.0, NOW)

    async def charged(**ago: float) -> int:
        return await slot.charge(connection, *OURS, rate_max=5.0, wanted=9, now=NOW - timedelta(**ago))

    # As one does that has waited for the row while others were faster.
    assert [5, 0, 0] == [await charged(), await charged(seconds=1), await charged()]
    # But a clock that was set back does not stand still until it is as late again.
    assert [0, 5] == [await charged(hours=1), await charged(minutes=59)]
    await connection.close()
