"""What waits is claimed once, in its order, by who may; and its place in line comes and goes with it."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from placet_server.model.action import Action
from placet_server.model.errors import StoreUnavailable
from placet_server.model.lifecycle import ActionState
from placet_server.store import action as actions
from placet_server.store import queue
from placet_server.store.batch import BatchWriter
from placet_server.store.clock import DatabaseClock
from placet_server.store.connection import Connection, connect
from placet_server.store.event import list_receipts
from tests.postgres import Database
from tests.store.line import (
    LINE,
    NOWHERE,
    advance_queued,
    claim,
    claimed,
    id_of,
    open_boot,
    places,
    read,
    row,
    submit,
)

pytestmark = pytest.mark.both_servers


async def close(connection: Connection, action: Action, *, dead: bool) -> bool:
    return await actions.close_queued(
        connection,
        action,
        state=ActionState.EXHAUSTED if dead else ActionState.CANCELLED,
        effect=None,
        lease_id=id_of(0),
        reason="QUEUE_DELAY" if dead else "CANCELLED_BY_CALLER",
        cause=None,
        event_type="settled",
        event_body="{}",
        dead_letter=dead,
        now=None,
    )


async def test_a_submission_is_stored_with_its_event_and_its_place(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    soon, late = await submit(connection, boot_id, row(1), row(2, delay_seconds=60.0))
    action = await read(connection, 2)
    assert {"queue_ready": [1], "queue_delayed": [2], "dead_letters": []} == await places(connection)
    assert (ActionState.QUEUED, 0, "default", 5, 1, True) == (
        action.state,
        action.attempt,
        action.queue,
        action.priority,
        action.generation,
        action.is_submitted,
    )
    assert (soon["time_us"], late["time_us"] + 60_000_000) == (soon["ready_time_us"], late["ready_time_us"])
    (receipt,) = await list_receipts(connection, "acme", id_of(2))
    assert action.receipt_digest == receipt.receipt
    assert f'"queue":"default","ready_time_us":{action.ready_time_us}}}' in receipt.body
    await connection.close()


async def test_a_held_key_or_a_dead_boot_leaves_no_place(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1))
    assert [] == await submit(connection, boot_id, row(2, key_digest=f"{1:064x}"))
    await connection.execute("update instances set state = 'DEAD', dead_time = now()")
    assert [] == await submit(connection, boot_id, row(3))
    assert [] == await claim(connection, boot_id)
    assert NOWHERE | {"queue_ready": [1]} == await places(connection)
    await connection.close()


async def test_a_claim_takes_the_first_of_a_lane_and_their_places(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1), row(2, priority=0), row(3, priority=9), row(4))
    await submit(connection, boot_id, row(5, queue="slow"), row(6, version="2"), row(7, tenant="evil"))
    picked = await claim(connection, boot_id, 2)
    assert [1, 2] == claimed(picked)
    first = next(p.action for p in picked if p.action is not None)
    assert (ActionState.RUNNING, 1, boot_id, "{}") == (
        first.state,
        first.attempt,
        first.instance_id,
        first.input_json,
    )
    assert first.start_time_us is not None
    assert first.start_time_us + 60_000_000 == first.deadline_us
    assert first.start_time_us + 600_000_000 == first.effect_key_expire_time_us
    assert first.start_time_us == first.budget_time_us
    assert 2 == len({p.action.lease_id for p in picked if p.action is not None})
    assert NOWHERE | {"queue_ready": [3, 4, 5, 6, 7]} == await places(connection)
    # A watermark skips what comes before it.
    assert [3] == claimed(await claim(connection, boot_id, after_priority=6))
    await connection.close()


async def test_what_a_claim_told_is_what_is_stored(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    retry = '{"delay_seconds_max":9,"initial_delay_seconds":0.5,"multiplier":3}'
    await submit(
        connection,
        boot_id,
        row(
            1, retry=retry, attempt_timeout_seconds=70.0, queue_delay_seconds=5.0, effect_key_ttl_seconds=None
        ),
    )
    (picked,) = await claim(connection, boot_id)
    assert await read(connection, 1) == picked.action
    await connection.close()


@pytest.mark.parametrize("seconds", [7.0, 1000.0])
async def test_an_attempt_has_the_time_that_was_asked_for_within_the_contract(
    database: Database, seconds: float
) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1, attempt_timeout_seconds=seconds))
    (picked,) = await claim(connection, boot_id)
    assert picked.action is not None
    assert picked.action.deadline_us is not None
    assert picked.action.start_time_us is not None
    assert min(seconds, 90.0) * 1e6 == picked.action.deadline_us - picked.action.start_time_us
    await connection.close()


@pytest.mark.parametrize(
    "barred",
    [
        "cancel_requested_time = now()",
        "attempt = 1, effect = 'UNKNOWN', effect_unknown = true, effect_key_expire_time = now()",
        "queue = null, on_caller_gone = 'CANCEL', attempt = 1, deadline = now()",
        "queue_delay = interval '0'",
        "state = 'CANCELLED', lease_id = gen_random_uuid(), reason = 'X', settle_time = now()",
    ],
)
async def test_what_may_not_run_is_told_and_keeps_its_place(database: Database, barred: str) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1), row(2))
    await connection.execute(f"update actions set {barred} where action_id = $1", id_of(1))
    picked = await claim(connection, boot_id)
    assert [2] == claimed(picked)
    assert [id_of(1)] == [p.action_id for p in picked if p.action is None]
    assert NOWHERE | {"queue_ready": [1]} == await places(connection)
    await connection.close()


async def test_two_servers_claim_the_same_lane_without_waiting_or_sharing(database: Database) -> None:
    one, boot_id = await open_boot(database)
    other = await connect(database.dsn)
    await submit(one, boot_id, *(row(n) for n in range(1, 7)))
    async with one.transaction():
        first = await claim(one, boot_id, 3)
        async with asyncio.timeout(5):
            second = await claim(other, boot_id, 3)
    await one.close()
    await other.close()
    assert ([1, 2, 3], [4, 5, 6]) == (claimed(first), claimed(second))


async def test_a_resend_and_a_claim_take_an_action_once(database: Database) -> None:
    one, boot_id = await open_boot(database)
    other = await connect(database.dsn)
    await submit(one, boot_id, row(1))
    action = await read(one, 1)

    async def resend(connection: Connection) -> Any:
        return await actions.claim(
            connection, action, lease_id=id_of(9), boot_id=boot_id, timeout_seconds=1.0, now=None
        )

    # Whoever is second waits for the place in line or passes it over, and then finds nothing to take.
    async with one.transaction():
        assert [1] == claimed(await claim(one, boot_id))
        late = asyncio.create_task(resend(other))
        await _until_locked(one)
    assert await late is None
    await one.execute("update actions set state = 'QUEUED', lease_id = null")
    await one.execute(
        "insert into queue_ready select 'acme', $1, 'default', 'shop.pack', '1', 5, now()", id_of(1)
    )
    action = await read(one, 1)
    async with one.transaction():
        assert await resend(one) is not None
        assert [] == await claim(other, boot_id)
    assert NOWHERE == await places(one)
    await one.close()
    await other.close()


async def _until_locked(connection: Connection) -> None:
    async with asyncio.timeout(5):
        while not await connection.fetchval(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ):
            await connection.execute("select pg_stat_clear_snapshot()")


async def test_delayed_actions_do_not_hide_a_ready_one_and_come_in_time(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    delayed = [row(n, priority=0, delay_seconds=60.0) for n in range(1, 66)]
    await submit(connection, boot_id, *delayed, row(66, priority=9))
    assert [66] == claimed(await claim(connection, boot_id))
    seconds = await queue.next_due_seconds(connection, None)
    assert seconds is not None
    assert 50 < seconds <= 60
    assert {} == await queue.promote(connection, 100, None)
    for table in ("actions", "queue_delayed"):
        await connection.execute(f"update {table} set ready_time = now() where action_id < $1", id_of(41))
    assert {LINE: 30} == await queue.promote(connection, 30, None)
    assert {LINE: 10} == await queue.promote(connection, 30, None)
    assert list(range(1, 41)) == claimed(await claim(connection, boot_id, 100))
    await connection.close()


async def test_a_retry_goes_back_into_line_and_only_with_its_lease(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1), row(2), row(3))
    now, soon, expiring = sorted(await claim(connection, boot_id), key=lambda p: p.action_id)
    assert 0 == await advance_queued(connection, now, lease_id=id_of(9))
    assert NOWHERE == await places(connection)
    assert 1 == await advance_queued(connection, now)
    assert 1 == await advance_queued(connection, soon, claim_delay_seconds=60.0)
    assert 1 == await advance_queued(connection, expiring, claim_delay_seconds=60.0, expire_time_us=1)
    assert {"queue_ready": [1], "queue_delayed": [2, 3], "dead_letters": []} == await places(connection)
    # Never closed before it could have been claimed; and never, where nothing says so.
    rows = await connection.fetch("select ready_time = expire_time from queue_delayed order by action_id")
    assert [None, True] == [r[0] for r in rows]
    (again,) = await claim(connection, boot_id)
    assert again.action is not None
    assert (2, 4) == (again.action.attempt, again.action.sequence)
    await connection.close()


async def test_an_end_and_its_dead_letter_are_one_commit(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1))
    (picked,) = await claim(connection, boot_id)
    ending = {"state": "EXHAUSTED", "reason": "RETRY_BUDGET", "event_type": "settled", "dead_letter": True}
    await connection.execute("alter table dead_letters rename to elsewhere")
    with pytest.raises(asyncpg.UndefinedTableError):
        await advance_queued(connection, picked, **ending)
    assert ActionState.RUNNING is (await read(connection, 1)).state
    await connection.execute("alter table elsewhere rename to dead_letters")
    assert 1 == await advance_queued(connection, picked, **ending)
    assert NOWHERE | {"dead_letters": [1]} == await places(connection)
    await connection.close()


@pytest.mark.parametrize("delay_seconds", [None, 60.0])
async def test_a_cancel_lets_the_place_expire_and_closing_takes_it_away(
    database: Database, delay_seconds: float | None
) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1, delay_seconds=delay_seconds), row(2))
    assert [] == await queue.list_expired(connection, 10, None)
    await actions.request_cancel(connection, tenant="acme", action_id=id_of(1), event_body="{}", now=None)
    (expired,) = await queue.list_expired(connection, 10, None)
    assert id_of(1) == expired.action_id
    assert await close(connection, expired, dead=False)
    assert NOWHERE | {"queue_ready": [2]} == await places(connection)
    assert not await close(connection, expired, dead=False)
    await connection.close()


async def test_what_was_not_begun_in_time_becomes_a_dead_letter(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1, queue_delay_seconds=0.001), row(2, queue_delay_seconds=60.0))
    await connection.execute("select pg_sleep(0.002)")
    (expired,) = await queue.list_expired(connection, 10, None)
    assert await close(connection, expired, dead=True)
    assert {"queue_ready": [2], "queue_delayed": [], "dead_letters": [1]} == await places(connection)
    await connection.close()


async def test_a_place_without_an_action_that_waits_is_forgotten(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1), row(2), row(3, delay_seconds=60.0))
    await connection.execute("delete from actions where action_id = $1", id_of(3))
    await connection.execute(
        "update actions set state = 'RUNNING', attempt = 1, lease_id = action_id where action_id = $1",
        id_of(1),
    )
    items = [("acme", id_of(n)) for n in (1, 2, 3, 4)]
    assert 2 == await queue.drop_orphans(connection, items)
    assert NOWHERE | {"queue_ready": [2]} == await places(connection)
    await connection.close()


async def test_expiries_are_corrected(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(connection, boot_id, row(1), row(2, delay_seconds=60.0))
    for number in (1, 2):
        await queue.set_expiry(connection, await read(connection, number), 1)
    assert 2 == len(await queue.list_expired(connection, 10, None))
    for number in (1, 2):
        await queue.set_expiry(connection, await read(connection, number), None)
    assert [] == await queue.list_expired(connection, 10, None)
    await connection.close()


async def test_a_cancel_beside_a_correction_keeps_its_expiry(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    other, _ = await open_boot(database)
    await submit(connection, boot_id, row(1), row(2, delay_seconds=60.0))
    for number in (1, 2):
        as_read = await read(connection, number)
        async with connection.transaction():
            await actions.request_cancel(
                connection, tenant="acme", action_id=id_of(number), event_body="{}", now=None
            )
            correcting = asyncio.create_task(queue.set_expiry(other, as_read, None))
            waits = "select exists (select from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid)))"
            while not await connection.fetchval(waits):
                pass
        await correcting
    assert 2 == len(await queue.list_expired(connection, 10, None))
    await connection.close()
    await other.close()


async def test_lanes_are_found_one_by_one_each_with_its_first(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(
        connection,
        boot_id,
        *(row(n, priority=n % 10) for n in range(1, 50)),
        row(50, tenant="zeta"),
        row(51, queue="fast"),
        row(52, capability="shop.ship"),
        row(53, version="2"),
    )
    lines = await queue.list_lines(connection, after=None, count_max=10)
    assert [
        LINE,
        LINE._replace(tenant="zeta"),
        LINE._replace(version="2"),
        LINE._replace(capability="shop.ship"),
        LINE._replace(queue="fast"),
    ] == [each.line for each in lines]
    assert 0 == lines[0].priority
    assert lines[2:4] == await queue.list_lines(connection, after=lines[1].line, count_max=2)
    await connection.close()


async def test_depths_are_counted_per_queue_and_tenant(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(
        connection,
        boot_id,
        row(1),
        row(2, capability="shop.ship"),
        row(3, tenant="evil"),
        row(4, delay_seconds=60.0),
        row(5, queue="slow", delay_seconds=60.0, tenant="evil"),
    )
    await connection.execute(
        "update queue_ready set ready_time = now() - interval '9 s' where tenant = 'evil'"
    )
    of_all = await queue.summarize(connection, None, None)
    assert [("default", 3, 1), ("slow", 0, 1)] == [(q.name, q.ready, q.delayed) for q in of_all]
    assert of_all[0].oldest_seconds is not None
    assert 9 <= of_all[0].oldest_seconds < 60
    assert of_all[1].oldest_seconds is None
    (own,) = await queue.summarize(connection, "acme", None)
    assert ("default", 2, 1) == (own.name, own.ready, own.delayed)
    assert own.oldest_seconds is not None
    assert own.oldest_seconds < 9
    await connection.close()


async def test_the_writer_sends_what_is_not_alike_in_statements_of_its_own(database: Database) -> None:
    connection, boot_id = await open_boot(database)

    async def reconnect() -> Connection:
        return connection

    writer = BatchWriter(connect=reconnect, boot_id=boot_id, clock=DatabaseClock())
    await submit(connection, boot_id, row(1), row(2))
    retried, done = sorted(await claim(connection, boot_id), key=lambda p: p.action_id)
    assert retried.action is not None
    assert done.action is not None
    head: dict[str, Any] = {"tenant": "acme", "event_body": "{}", "effect_unknown": False}
    success: dict[str, Any] = {"state": "SUCCEEDED", "effect": "DONE", "output": "1", "event_type": "settled"}
    success |= {"action_id": id_of(2), "lease_id": done.action.lease_id}
    again: dict[str, Any] = {
        "state": "QUEUED",
        "effect": "NOT_DONE",
        "event_type": "requeued",
        "action_id": id_of(1),
    }
    again |= {
        "lease_id": retried.action.lease_id,
        "dead_letter": False,
        "queue": "default",
        "priority": 5,
        "capability": "shop.pack",
    }
    again |= {"version": "1", "claim_delay_seconds": 0.0, "expire_time_us": None}
    futures = [
        writer.submit(row(3, delay_seconds=60.0)),  # type: ignore[arg-type]
        writer.advance(head | success),  # type: ignore[arg-type]
        writer.advance(head | again),  # type: ignore[arg-type]
        writer.submit(row(4, key_digest=f"{2:064x}")),  # type: ignore[arg-type]
    ]
    await writer._flush(writer._take())
    submitted, settled, requeued, refused = (future.result() for future in futures)
    assert refused is None
    assert submitted is not None
    assert submitted.time_us + 60_000_000 == submitted.ready_time_us
    assert [3, 3] == [each.sequence for each in (settled, requeued) if each is not None]
    assert {"queue_ready": [1], "queue_delayed": [3], "dead_letters": []} == await places(connection)
    await connection.close()


async def test_a_writer_that_is_broken_off_leaves_nobody_without_an_answer() -> None:
    asked = asyncio.Event()

    async def hang() -> Connection:
        asked.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    writer = BatchWriter(connect=hang, boot_id=id_of(0), clock=DatabaseClock())
    task = asyncio.create_task(writer.run())
    waiting = writer.advance({"action_id": id_of(1)})
    await asked.wait()
    task.cancel()
    await asyncio.wait([task])
    assert waiting.done()
    assert isinstance(waiting.exception(), StoreUnavailable)
