"""A doubt is claimed, noted, given up or forgotten under the name of another tenant, version or capability, or of one
that has moved on."""

from __future__ import annotations

from functools import partial
from typing import Any

from placet_server.store import reconcile
from placet_server.store.connection import Connection
from placet_server.store.reconcile import FIRST, Due, Kind
from tests.postgres import Database
from tests.store.line import id_of, kill, open_boot, read

OURS = Kind("shop.pack", "1", "acme")
# By number: of our kind, and of those that differ from it in one thing. The first two have one number.
KINDS = [OURS, Kind("shop.pack", "1", "evil"), Kind("shop.pack", "2", "acme"), Kind("shop.send", "1", "acme")]
DOUBTFUL = "state = 'AMBIGUOUS', effect = 'UNKNOWN', effect_unknown = true, settle_time = null"
ENDED = "state = 'FAILED', effect = 'NOT_DONE', effect_unknown = false, settle_time = now()"


async def doubts(database: Database) -> Connection:
    """One of each kind, due now."""
    connection, boot_id = await open_boot(database)
    await kill(connection, boot_id, 1, 2, 3)
    await connection.execute(f"update actions set {DOUBTFUL}")
    await connection.execute("update actions set version = '2' where action_id = $1", id_of(2))
    await connection.execute("update actions set capability = 'shop.send' where action_id = $1", id_of(3))
    await connection.execute(
        "create temp table theirs as select * from actions where action_id = $1", id_of(1)
    )
    await connection.execute("update theirs set tenant = 'evil', key_digest = sha256('theirs')")
    await connection.execute("insert into actions select * from theirs")
    assert 4 == await reconcile.repair(connection, count_max=9, now=None)
    return connection


async def claim(connection: Connection, *kinds: Kind) -> list[Due]:
    return await reconcile.claim_due(
        connection, kinds, each_max=9, count_max=9, visible_seconds=0.0, now=None
    )


async def rows(connection: Connection, what: str) -> list[Any]:
    """Of ours, then of the others."""
    found = []
    for capability, version, tenant in KINDS:
        sql = f"select {what} from reconciles where capability = $1 and version = $2 and tenant = $3"
        found.append(await connection.fetchval(sql, capability, version, tenant))
    return found


async def test_what_is_claimed_noted_and_wanted_is_of_the_kind_that_was_named(database: Database) -> None:
    connection = await doubts(database)
    (due,) = await claim(connection, OURS)
    assert (OURS, [1, 0, 0, 0]) == (
        Kind(due.action.capability, due.action.version, due.action.requester.tenant),
        await rows(connection, "asked"),
    )
    await reconcile.note_finding(connection, due, finding="f", delay_seconds=0, give_up=False, now=None)
    assert ["f", None, None, None] == await rows(connection, "finding")
    assert await reconcile.want(connection, "acme", id_of(1), now=None)
    assert [True, False, False, False] == await rows(connection, "wanted")
    await connection.close()


async def test_only_what_is_as_it_was_read_is_given_up_and_no_namesake_of_it(database: Database) -> None:
    connection = await doubts(database)
    ours = await read(connection, 1)
    give_up = partial(reconcile.give_up, connection, event_body="{}", now=None)
    assert not await give_up(ours.changed(sequence=ours.sequence - 1))
    await connection.execute(f"update actions set {ENDED}")
    assert not await give_up(ours)
    await connection.execute(f"update actions set {DOUBTFUL}")
    assert await give_up(ours)
    told = await connection.fetch("select tenant from events where type = 'reconcile_given_up'")
    assert ["acme"] == [row["tenant"] for row in told]
    await connection.close()


async def test_a_doubt_is_forgotten_once_it_has_ended_and_is_never_put_in_twice(database: Database) -> None:
    connection = await doubts(database)
    await reconcile.forget(connection, "acme", id_of(1))
    assert 0 == await reconcile.repair(connection, count_max=9, now=None)
    # What is given up keeps its row, and nobody asks of its kind.
    await connection.execute("update reconciles set give_up_time = now()")
    assert 0 == await reconcile.drop_settled(connection, count_max=9)
    assert [] == await reconcile.list_kinds(connection, after=FIRST, count_max=9, now=None)
    assert [] == await claim(connection, *KINDS)
    await connection.execute(f"update actions set {ENDED}")
    assert not await reconcile.want(connection, "acme", id_of(1), now=None)
    await reconcile.forget(connection, "acme", id_of(1))
    assert [None, 0, 0, 0] == await rows(connection, "asked")
    assert 3 == await reconcile.drop_settled(connection, count_max=9)
    await connection.close()
