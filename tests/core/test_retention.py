"""What was kept long enough goes with all that belongs to it, and never what somebody may still need."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from placet_server.core.decision import policy
from placet_server.core.kernel import Kernel
from placet_server.core.publication import feed
from placet_server.core.publication.descendants import watch_descendants
from placet_server.core.publication.feed import watch_events
from placet_server.core.recovery import retention
from placet_server.core.recovery.recover import RecoverCommand, Recovery, list_reports, recover
from placet_server.core.recovery.redrive import RedriveCommand, redrive
from placet_server.core.recovery.rescue import rescue
from placet_server.core.recovery.retention import Cleaned, Retention, clean
from placet_server.model.action import Action, Submission
from placet_server.model.errors import CursorExpired
from placet_server.model.event import Event, IdleCheckpoint
from placet_server.model.lifecycle import ActionState
from placet_server.model.query import FeedFilter
from placet_server.store import callback as deliveries
from placet_server.store import event, instance
from placet_server.store.clock import FixedClock
from placet_server.store.retention import SQL, lock_walk
from tests.core.family import family
from tests.core.kernels import (
    ALICE,
    QUEUE,
    declare_dead,
    dispatch,
    open_kernel,
    places,
    put,
    read,
    run,
    states,
    until,
    work_off,
)
from tests.core.receiver import callback
from tests.core.workshop import Workshop
from tests.postgres import Database

START = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
WALK = (
    "lock_walk",
    "note_walk",
    "next_tenant",
    "end_of_page",
    "trim_lanes",
    "trim_deltas",
    "note_trimmed",
    "delete_boots",
    "delete_reports",
    "delete_deliveries",
    "delete_verdicts",
)
MONTH = Retention(ended=30 * DAY, dead_letter=90 * DAY)


async def clean_all(kernel: Kernel, kept: Retention = MONTH) -> int:
    """A whole walk; how many actions it took away."""
    await rewind(kernel)
    total, cleaned = 0, Cleaned(has_more=True)
    while cleaned.has_more:
        cleaned = await clean(kernel.journal, kept)
        total += cleaned.actions
    return total


async def rewind(kernel: Kernel) -> None:
    """As if the last walk had been long ago."""
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update retention_walk set next_time = '-infinity'")


async def rows(kernel: Kernel, table: str) -> Sequence[Any]:
    async with kernel.journal.pool.connection() as connection:
        return await connection.fetch(f"select * from {table}")


async def test_ended_actions_go_with_all_that_is_theirs_but_for_the_head_of_the_chain(
    database: Database,
) -> None:
    shop, clock = Workshop(), FixedClock(START)

    async def talk(context: Any) -> None:
        await context.chunk("said")

    shop.script = talk
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        done = (await run(kernel, "work.idempotent", {}, "k")).action
        young = (await run(kernel, "work.read", {}, caller=ALICE)).action
        async with kernel.journal.pool.connection() as connection:
            receipts = await event.list_receipts(connection, "acme", done.action_id)
            await connection.execute(
                "update actions set settle_time = settle_time + interval '1 day' where action_id = $1",
                young.action_id,
            )
            await connection.execute("insert into governed select tenant, action_id, '{}' from actions")
            await connection.execute(
                """insert into policy_refusals
                select tenant, action_id, create_time, capability, version, subject, '{}', input_digest, '', '{}'
                from actions"""
            )
        clock.advance(30 * DAY - timedelta(seconds=1))
        assert 0 == await clean_all(kernel)
        clock.advance(timedelta(seconds=1))
        assert 1 == await clean_all(kernel)
        (head,) = await rows(kernel, "receipt_heads")
        assert (done.action_id, len(receipts), receipts[-1].receipt) == (
            str(head["action_id"]),
            head["sequence"],
            head["receipt_digest"].hex(),
        )
        for table in ("actions", "events", "lane_items", "governed"):
            assert {young.action_id} == {str(row["action_id"]) for row in await rows(kernel, table)}
        assert [young.action_id] == [str(row["refusal_id"]) for row in await rows(kernel, "policy_refusals")]
        clock.advance(DAY)
        assert (1, 0) == (await clean_all(kernel), await clean_all(kernel))
        # The key is forgotten, too: what comes with it is another action.
        assert done.action_id != (await run(kernel, "work.idempotent", {}, "k")).action.action_id


async def test_what_is_open_ambiguous_or_known_by_its_key_is_kept(database: Database) -> None:
    shop, stuck = (Workshop(key_ttl=timedelta(days=60)) for _ in range(2))
    clock = FixedClock(START)
    async with (
        open_kernel(database.dsn, stuck.app, clock=clock) as lost,
        open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel,
    ):
        lost.engine.supervisor.start(run(lost, "work.unsafe", {}, "ambiguous", time_left_seconds=None))
        await stuck.began.wait()
        await declare_dead(lost)
        await rescue(kernel.journal)
        shop.gate.set()
        known = (await run(kernel, "work.idempotent", {}, "known")).action
        waiting = await put(kernel, "work.read", {}, place=Submission(delay_seconds=300 * 86400.0))
        before = await states(kernel)
        clock.advance(31 * DAY)
        assert 0 == await clean_all(kernel)
        assert ["AMBIGUOUS", "SUCCEEDED", "QUEUED"] == before == await states(kernel)
        clock.advance(30 * DAY)
        # Its key is forgotten by now.
        assert 1 == await clean_all(kernel)
        assert known.action_id in {str(row["action_id"]) for row in await rows(kernel, "receipt_heads")}
        assert ActionState.QUEUED is (await read(kernel, waiting.action.action_id)).state
        clock.advance(200 * DAY)
        assert 0 == await clean_all(kernel)
        assert ["AMBIGUOUS", "QUEUED"] == await states(kernel)


async def test_dead_letters_are_kept_longer_and_go_too(database: Database) -> None:
    shop, clock = Workshop(attempts_max=1), FixedClock(START)

    async def break_down(_: Any) -> None:
        raise RuntimeError("broken")

    shop.script = break_down
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        for number in range(7):
            await put(kernel, "work.read", {}, f"k{number}")
        await work_off(kernel)
        assert 7 == len((await places(kernel))["dead_letters"])
        clock.advance(89 * DAY)
        assert 0 == await clean_all(kernel)
        clock.advance(DAY)
        assert 0 == await clean_all(kernel, Retention(ended=30 * DAY, dead_letter=None))
        assert 7 == await clean_all(kernel)
        assert [] == (await places(kernel))["dead_letters"]
        assert [] == await states(kernel)


async def test_small_batches_reach_everything_of_every_tenant(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "EXAMINED_MAX", 3)
    monkeypatch.setattr(retention, "ACTIONS_MAX", 2)
    monkeypatch.setattr(retention, "EVENTS_MAX", 3)
    monkeypatch.setattr(retention, "ITEMS_MAX", 2)
    shop, clock = Workshop(), FixedClock(START)

    async def talk(context: Any) -> None:
        for _ in range(3):
            await context.chunk("said")

    shop.script = talk
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        for _ in range(8):
            await run(kernel, "work.read", {})
        await put(kernel, "work.read", {}, place=Submission(delay_seconds=300 * 86400.0))
        for _ in range(4):
            await run(kernel, "work.read", {})
        async with kernel.journal.pool.connection() as connection:
            for table in ("actions", "events", "lane_items"):
                await connection.execute(
                    f"update {table} set tenant = 'b' || substr(action_id::text, 36)"
                    " where action_id in (select action_id from actions order by action_id limit 5)"
                    if table == "actions"
                    else f"update {table} as t set tenant = a.tenant from actions as a where a.action_id = t.action_id"
                )
        clock.advance(30 * DAY)
        assert 12 == await clean_all(kernel)
        assert ["QUEUED"] == [row["state"] for row in await rows(kernel, "actions")]
        assert [] == await rows(kernel, "lane_items")
        assert 1 == len(await rows(kernel, "events"))
        assert 12 == len(await rows(kernel, "receipt_heads"))


async def test_one_process_cleans_at_a_time(database: Database) -> None:
    shop, clock = Workshop(), FixedClock(START)
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        await run(kernel, "work.read", {})
        clock.advance(30 * DAY)
        assert 0 == await clean_all(kernel, Retention(ended=None, dead_letter=None))
        await rewind(kernel)
        async with kernel.journal.pool.tx() as connection:
            assert await lock_walk(connection, START + 30 * DAY) is not None
            assert Cleaned() == await clean(kernel.journal, MONTH)
        assert 1 == await clean_all(kernel)


async def test_a_redrive_and_the_cleaner_make_one_end(database: Database) -> None:
    """Either it is gone, and its redrive finds nothing; or it is ready again, and stays."""
    shop, clock = Workshop(attempts_max=1), FixedClock(START)

    async def break_down(_: Any) -> None:
        raise RuntimeError("broken")

    shop.script = break_down

    async def one_attempt(_: Action) -> int:
        return 1

    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        ids = [(await put(kernel, "work.read", {})).action.action_id for _ in range(40)]
        await work_off(kernel)
        clock.advance(90 * DAY)
        answers = asyncio.gather(
            *(
                redrive(kernel.journal, ALICE, RedriveCommand(action_ids=(action_id,)), one_attempt)
                for action_id in reversed(ids)
            )
        )
        gone = await clean_all(kernel)
        changed = {each.action_id for (each,) in await answers if each.changed}
        refused = {each.refused_rule for (each,) in await answers if not each.changed}
        gone += await clean_all(kernel)
        assert 40 == gone + len(changed)
        assert refused <= {"not_found"}
        assert sorted(changed) == (await places(kernel))["queue_ready"]
        assert sorted(changed) == sorted(str(row["action_id"]) for row in await rows(kernel, "actions"))
        assert changed == {str(row["action_id"]) for row in await rows(kernel, "events")}


async def test_what_was_redriven_since_the_cleaner_chose_it_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, clock = Workshop(attempts_max=1), FixedClock(START)

    async def break_down(_: Any) -> None:
        raise RuntimeError("broken")

    async def one_attempt(_: Action) -> int:
        return 1

    shop.script = break_down
    # The statement waits between its choice and its look under the lock.
    query = SQL["delete_ended"]
    choice = "where events - sequence <"
    assert choice in query.sql
    stops = query.sql.replace(
        choice, "where pg_advisory_xact_lock_shared(7) is not null and events - sequence <"
    )
    stopping = {**{name: SQL[name] for name in WALK}, "delete_ended": replace(query, sql=stops)}
    monkeypatch.setattr("placet_server.store.retention.SQL", stopping)
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        action = (await put(kernel, "work.read", {})).action
        await work_off(kernel)
        clock.advance(90 * DAY)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute("select pg_advisory_lock(7)")
            cleaning = asyncio.ensure_future(clean_all(kernel))
            while not await connection.fetchval("select exists (select from pg_locks where not granted)"):
                assert not cleaning.done()
            command = RedriveCommand(action_ids=(action.action_id,))
            (answer,) = await redrive(kernel.journal, ALICE, command, one_attempt)
            await connection.execute("select pg_advisory_unlock(7)")
        assert (True, 0) == (answer.changed, await cleaning)
        assert ActionState.QUEUED is (await read(kernel, action.action_id)).state
        assert [action.action_id] == (await places(kernel))["queue_ready"]


async def test_a_child_is_kept_as_long_as_its_parent(database: Database) -> None:
    async def ship(context: Any) -> Any:
        return await context.call("charge", "work.read", {"order": "7"}, timeout=5)

    async def charge(_: Any) -> Any:
        return {"order": "charged"}

    clock = FixedClock(START)
    async with open_kernel(database.dsn, family(ship, child=charge).app, clock=clock, queue=QUEUE) as kernel:
        parent = (await put(kernel, "work.idempotent", {}, "k")).action
        await work_off(kernel)
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update actions set settle_time = settle_time + interval '1 hour' where action_id = $1",
                parent.action_id,
            )
        clock.advance(30 * DAY)
        assert 0 == await clean_all(kernel)
        clock.advance(timedelta(hours=1))
        assert (1, 1, 0) == (await clean_all(kernel), await clean_all(kernel), await clean_all(kernel))
        assert [] == [*await rows(kernel, "lineage"), *await rows(kernel, "events")]


async def test_a_reader_of_the_feed_is_told_that_it_missed_something_and_where_to_begin(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PAGE_MAX", 1)
    shop, clock = Workshop(), FixedClock(START)
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:
        gone = (await run(kernel, "work.read", {})).action
        reading = watch_events(kernel.journal, ALICE, "", FeedFilter())
        first = await anext(reading)
        assert gone.action_id == first.action_id
        clock.advance(29 * DAY)
        kept = (await run(kernel, "work.read", {})).action
        early = watch_events(kernel.journal, ALICE, "", FeedFilter())
        told = [await anext(early) for _ in range(4)]
        clock.advance(DAY)
        assert 1 == await clean_all(kernel)
        # It stands before the gap.
        with pytest.raises(CursorExpired) as expired:
            await anext(reading)
        for cursor in (first.cursor, told[1].cursor):
            with pytest.raises(CursorExpired):
                await anext(watch_events(kernel.journal, ALICE, cursor, FeedFilter()))
        for cursor in ("", expired.value.oldest_cursor, told[2].cursor):
            reading = watch_events(kernel.journal, ALICE, cursor, FeedFilter())
            assert kept.action_id == (await anext(reading)).action_id
            await reading.aclose()
        assert isinstance(
            await anext(watch_events(kernel.journal, ALICE, "", FeedFilter(), from_now=True)), IdleCheckpoint
        )


async def test_a_family_that_is_older_than_what_is_deleted_is_told_from_its_beginning(
    database: Database,
) -> None:
    shop, clock = Workshop(), FixedClock(START)
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as kernel:
        root = (await put(kernel, "work.read", {}, place=Submission(delay_seconds=40 * 86_400))).action
        await run(kernel, "work.read", {})
        clock.advance(30 * DAY)
        assert 1 == await clean_all(kernel)
        reading = watch_descendants(kernel.journal, ALICE, root.action_id, "")
        first = await anext(reading)
        assert isinstance(first, Event)
        assert (root.action_id, 1) == (first.action_id, first.sequence)
        await reading.aclose()
        again = watch_descendants(kernel.journal, ALICE, root.action_id, first.cursor)
        assert isinstance(await anext(again), IdleCheckpoint)
        await again.aclose()


async def test_boots_that_are_dead_for_long_and_own_nothing_are_forgotten(database: Database) -> None:
    shop, clock = Workshop(), FixedClock(START)
    async with (
        open_kernel(database.dsn, shop.app, clock=clock) as idle,
        open_kernel(database.dsn, shop.app, clock=clock, queue=QUEUE) as busy,
        open_kernel(database.dsn, shop.app, clock=clock) as kernel,
    ):
        await put(busy, "work.read", {})
        await dispatch(busy)
        await until(shop.began.is_set)
        async with kernel.journal.pool.connection() as connection:
            for boot in (idle, busy):
                await instance.retire(connection, boot.boot_id, now=clock.now())
        clock.advance(DAY - timedelta(seconds=1))
        await clean_all(kernel)
        assert 3 == len(await rows(kernel, "instances"))
        clock.advance(timedelta(seconds=1))
        await clean_all(kernel)
        left = {str(row["boot_id"]) for row in await rows(kernel, "instances")}
        assert {busy.boot_id, kernel.boot_id} == left


async def test_old_reports_go_of_every_tenant_however_many(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "REPORTS_MAX", 2)
    kept, clock = replace(MONTH, report=7 * DAY), FixedClock(START)
    async with open_kernel(database.dsn, Workshop().app, clock=clock) as kernel:

        async def ask_now(actions: Sequence[Action]) -> int:
            return 0

        recovery = Recovery(
            journal=kernel.journal,
            may_declare_dead=lambda: False,
            ask_now=ask_now,
            can_be_asked=lambda _: True,
        )
        for tenant in ("acme", "acme", None, None, "evil"):
            await recover(recovery, ALICE, RecoverCommand(tenant=tenant, key="k" if tenant == "evil" else ""))
        clock.advance(7 * DAY - timedelta(seconds=1))
        new = await recover(recovery, ALICE, RecoverCommand(tenant="acme"))
        await clean_all(kernel, kept)
        assert 6 == len(await rows(kernel, "reports"))
        clock.advance(timedelta(seconds=1))
        await clean_all(kernel, MONTH)
        assert 6 == len(await rows(kernel, "reports"))
        await clean_all(kernel, kept)
        assert [new.report_id] == [str(row["report_id"]) for row in await rows(kernel, "reports")]
        assert [new.report_id] == [
            r.report_id for r in await list_reports(kernel.journal, "acme", page_size=10)
        ]
        again = await recover(recovery, ALICE, RecoverCommand(tenant="evil", key="k"))
        assert new.create_time_us < again.create_time_us


async def test_what_policies_said_goes_when_no_action_names_it_and_is_stored_again_when_used_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "BELIEVED_SECONDS", 0.0)
    shop, clock = Workshop(), FixedClock(START)
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app, clock=clock) as kernel:

        async def told() -> set[str]:
            return {row["digest"].hex() for row in await rows(kernel, "verdicts")}

        gone = (await run(kernel, "work.idempotent", {}, "k")).action
        left = (await run(kernel, "work.read", {})).action
        async with kernel.journal.pool.connection() as connection:
            await connection.execute(
                "update actions set settle_time = settle_time + interval '9 days' where action_id = $1",
                left.action_id,
            )
        both = {gone.verdict_digest, left.verdict_digest}
        clock.advance(30 * DAY)
        assert (1, both) == (await clean_all(kernel), await told())
        # Whoever believed it to be stored until now may name it for so long.
        clock.advance(DAY)
        assert (0, {left.verdict_digest}) == (await clean_all(kernel), await told())
        kernel.policies.forget("acme")
        await run(kernel, "work.idempotent", {}, "k2")
        assert both == await told()
        clock.advance(40 * DAY)
        assert (2, set()) == (await clean_all(kernel), await told())


async def test_deliveries_go_when_they_have_ended_for_long_and_never_before(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "DELIVERIES_MAX", 2)
    kept, clock = replace(MONTH, delivery=7 * DAY), FixedClock(START)
    async with open_kernel(database.dsn, Workshop().app, clock=clock) as kernel:
        told = [callback(number, tenant=tenant) for tenant in ("acme", "evil") for number in range(3)]
        async with kernel.journal.pool.connection() as connection:
            for each in told:
                await deliveries.insert(connection, each, ["desk"], attempts_max=1, now=clock.now())
            ended = "update deliveries set state = 'DEAD', end_time = $1 where event_id <> $2"
            await connection.execute(ended, START, told[0].event_id)
        clock.advance(7 * DAY - timedelta(seconds=1))
        await clean_all(kernel, kept)
        clock.advance(timedelta(days=1))
        await clean_all(kernel, MONTH)
        assert 6 == len(await rows(kernel, "deliveries"))
        await clean_all(kernel, kept)
        # It is not told any more either: no server has sent it all that time.
        assert [(told[0].event_id, "DEAD", retention.UNSENT)] == [
            (str(row["event_id"]), row["state"], row["last_error"])
            for row in await rows(kernel, "deliveries")
        ]
