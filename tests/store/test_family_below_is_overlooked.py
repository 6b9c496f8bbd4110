"""What an action has called, and what that has called, decides whether it may be tried again or called undone."""

from __future__ import annotations

import pytest

from placet_server.store import ambiguous, dead_letter, reconcile
from placet_server.store.connection import Connection
from tests.postgres import Database
from tests.store.line import id_of, kill, open_boot

TOP, MIDDLE, LEAF = 1, 2, 3
ENDED = "EXHAUSTED NOT_DONE"
# How the one in the middle and the one below it stand; whether the top one's redrive waits for that, and whether the
# top one may still act through them.
FAMILIES = [
    ("AMBIGUOUS UNKNOWN", ENDED, True, True),
    ("FAILED NOT_DONE", "AMBIGUOUS UNKNOWN", True, True),
    ("CANCELLED NOT_DONE", "AMBIGUOUS UNKNOWN", True, True),
    ("EXHAUSTED NOT_DONE", "AMBIGUOUS UNKNOWN", True, True),
    # What is done is met and not tried again, so nobody calls anew what it has called.
    ("FAILED DONE", "AMBIGUOUS UNKNOWN", False, True),
    ("SUCCEEDED DONE", "AMBIGUOUS UNKNOWN", False, True),
    ("FAILED NOT_DONE", "QUEUED NOT_DONE", True, True),
    ("FAILED NOT_DONE", "RUNNING NOT_DONE", True, True),
    ("FAILED NOT_DONE", "WAITING NOT_DONE", True, True),
    ("FAILED NOT_DONE", "RUNNING", False, True),
    ("FAILED NOT_DONE", ENDED, False, False),
    # What is under way is met.
    ("QUEUED NOT_DONE", ENDED, False, True),
    ("RUNNING NOT_DONE", ENDED, False, True),
    ("WAITING NOT_DONE", ENDED, False, True),
    ("SUCCEEDED DONE", "SUCCEEDED DONE", False, False),
]


async def become(connection: Connection, number: int, told: str) -> None:
    state, _, effect = told.partition(" ")
    sql = "update actions set state = $2, effect = $3 where action_id = $1"
    await connection.execute(sql, id_of(number), state, effect or None)


@pytest.mark.both_servers
async def test_whatever_stands_below_is_looked_at(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await kill(connection, boot_id, TOP, MIDDLE, LEAF)
    # Only how they stand is of interest here, not what else belongs to that.
    for (name,) in await connection.fetch(
        "select conname from pg_constraint where conrelid = 'actions'::regclass and contype = 'c'"
    ):
        await connection.execute(f"alter table actions drop constraint {name}")
    await connection.execute("update actions set deadline = now() - interval '1 day'")
    for child, parent, step in ((MIDDLE, TOP, "middle"), (LEAF, MIDDLE, "leaf")):
        await connection.execute(
            "insert into lineage values ('acme', $1, $3, 1, $2, $1, 1, 1, 1)",
            id_of(parent),
            id_of(child),
            step,
        )
    await connection.execute(
        "insert into reconciles (tenant, action_id, capability, version, since_time, next_time)"
        " select tenant, action_id, capability, version, now(), now() from actions where action_id = $1",
        id_of(TOP),
    )
    for middle, leaf, waits, may_act in FAMILIES:
        await become(connection, MIDDLE, middle)
        await become(connection, LEAF, leaf)
        dead = await dead_letter.find(connection, "acme", id_of(TOP))
        doubted = await ambiguous.find(connection, "acme", id_of(TOP), grace_seconds=30.0, now=None)
        (due,) = await reconcile.claim_due(
            connection,
            [reconcile.Kind("shop.pack", "1", "acme")],
            each_max=1,
            count_max=1,
            visible_seconds=0.0,
            now=None,
        )
        assert dead is not None
        assert doubted is not None
        assert (middle, leaf, waits, may_act, may_act) == (
            middle,
            leaf,
            dead.child_is_ambiguous,
            doubted.attempt_may_act,
            due.child_may_act,
        )
    await connection.close()
