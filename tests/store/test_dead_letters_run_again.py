"""Dead letters are found, and tried again only where nothing was done, under a new generation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from placet_server.model.action import Action
from placet_server.model.lifecycle import ActionState
from placet_server.model.query import DeadLetterFilter
from placet_server.store import dead_letter
from placet_server.store.connection import Connection
from placet_server.store.migrate import MIGRATIONS_FOLDER
from tests.postgres import Database
from tests.store.line import NOWHERE, claim, id_of, kill, open_boot, places, read, row, submit

pytestmark = pytest.mark.both_servers


async def test_dead_letters_are_listed_and_selected_by_filter(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await kill(connection, boot_id, 1, 2, 3, 4)

    async def page(tenant: str | None, before: str | None = None, **matching: Any) -> list[int]:
        found = await dead_letter.list_page(
            connection, tenant, DeadLetterFilter(**matching), before=before, page_size=2
        )
        return [int(action.action_id[-12:]) for action in found]

    assert ([4, 3], [2, 1], []) == (await page("acme"), await page(None, id_of(3)), await page("evil"))
    assert [3, 1] == await page("acme", queue="slow")
    assert [] == await page("acme", capabilities=("other",))
    assert [4, 3] == await page("acme", capabilities=("other", "shop.pack"), reason="RETRY_BUDGET")
    selected = await dead_letter.list_selected(
        connection, "acme", DeadLetterFilter(queue="slow"), count_max=9
    )
    assert [id_of(1), id_of(3)] == selected
    await connection.close()


async def redrive(connection: Connection, action: Action) -> bool:
    return await dead_letter.redrive(
        connection, action, attempts=2, event_body='{"generation":2}', approval_id=id_of(99), now=None
    )


async def test_a_redriven_action_begins_again_under_a_new_generation(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await kill(connection, boot_id, 2)
    # All that an earlier life may have left behind; and somebody else's dead letter of the same number.
    await connection.execute(
        "update actions set cancel_requested_time = now(), key_released = true, retry_delay = '5 s',"
        " effect_begun = true, queue_delay = '1 minute'"
    )
    await connection.execute(
        "insert into dead_letters select 'evil', action_id, queue, capability, reason, dead_time from dead_letters"
    )
    dead = await read(connection, 2)
    theirs = dead.changed(requester=replace(dead.requester, tenant="evil"))
    assert not await redrive(connection, theirs)
    assert await redrive(connection, dead)
    assert not await redrive(connection, dead)
    assert NOWHERE | {"queue_ready": [2], "dead_letters": [2]} == await places(connection)
    left = await connection.fetchrow(
        "select cancel_requested_time, key_released, retry_delay, effect_begun,"
        " (select expire_time - ready_time from queue_ready) as expires_in from actions"
    )
    assert (None, False, None, False, timedelta(minutes=1)) == tuple(left or ())
    again = await read(connection, 2)
    assert (ActionState.QUEUED, 2, 1, 3) == (again.state, again.generation, again.attempt, again.attempts_max)
    assert (None, None, None, None, None) == (
        again.reason,
        again.settle_time_us,
        again.lease_id,
        again.budget_time_us,
        again.effect_key_expire_time_us,
    )
    (picked,) = await claim(connection, boot_id)
    assert picked.action is not None
    assert picked.action.start_time_us is not None
    assert (2, 2) == (picked.action.attempt, picked.action.generation)
    # The provider's deduplication counts from the new generation's first attempt.
    assert picked.action.start_time_us + 600_000_000 == picked.action.effect_key_expire_time_us
    await connection.close()


@pytest.mark.parametrize(
    "barred",
    [
        "effect = 'DONE', state = 'FAILED'",
        "effect = 'DONE', state = 'SUCCEEDED', output = '1', reason = null",
        "effect = 'UNKNOWN', state = 'AMBIGUOUS', effect_unknown = true, settle_time = null",
        "key_digest = null",
        "sequence = 9",
        "state = 'RUNNING', settle_time = null, reason = null",
        "parent_id = action_id",
    ],
)
async def test_what_is_done_unknown_running_or_taken_over_or_a_child_is_not_redriven(
    database: Database, barred: str
) -> None:
    connection, boot_id = await open_boot(database)
    await kill(connection, boot_id, 2)
    dead = await read(connection, 2)
    await connection.execute(f"update actions set {barred}")
    assert not await redrive(connection, dead)
    assert NOWHERE | {"dead_letters": [2]} == await places(connection)
    await connection.close()


async def test_what_was_cancelled_may_be_wanted_again(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await kill(connection, boot_id, 2)
    await connection.execute("update actions set state = 'CANCELLED'")
    assert await redrive(connection, await read(connection, 2))
    await connection.close()


async def test_actions_of_the_release_before_keep_their_place_in_line(database: Database) -> None:
    """The rows that the migration makes of what waits and of what has ended, by its own statements."""
    connection, boot_id = await open_boot(database)
    await kill(connection, boot_id, 4)
    await submit(connection, boot_id, row(1), row(2))
    await connection.execute("truncate queue_ready, dead_letters")
    sql = (MIGRATIONS_FOLDER / "0005_queue.sql").read_text()
    for table in ("queue_ready", "dead_letters"):
        begin = sql.index(f"insert into {table}")
        await connection.execute(sql[begin : sql.index(";", begin)])
    assert {"queue_ready": [1, 2], "queue_delayed": [], "dead_letters": [4]} == await places(connection)
    await connection.close()
