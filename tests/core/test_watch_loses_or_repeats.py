"""Watching: every event once, in order, from wherever one stands, whatever happens meanwhile."""

import asyncio
import base64
import hashlib
import resource
from collections.abc import AsyncIterator

import pytest

from placet.context import Context
from placet_server.core.admission.execute import execute_stream
from placet_server.core.execution.cancel import cancel_action
from placet_server.core.kernel import Kernel
from placet_server.core.publication.cursor import Position, cursor_of, encode
from placet_server.core.publication.watch import PAGE_BYTES_MAX, watch_action
from placet_server.core.recovery.rescue import rescue
from placet_server.model.ending_errors import EffectAmbiguous
from placet_server.model.errors import CursorExpired, MalformedRequest, NotFound
from placet_server.model.event import Event, EventType, IdleCheckpoint
from placet_server.store import event as events
from tests.core.kernels import ALICE, EVE, call_of, declare_dead, only_action, open_kernel, run, until
from tests.core.workshop import Workshop
from tests.postgres import Database


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


async def watch(kernel: Kernel, action_id: str, after: str = "") -> list[Event]:
    items = [item async for item in watch_action(kernel.journal, ALICE, action_id, after)]
    return [item for item in items if isinstance(item, Event)]


def named(found: list[Event]) -> list[str]:
    return [e.body["text"] if e.type is EventType.CHUNK else e.type.value for e in found]


async def collect(stream: AsyncIterator[Event | IdleCheckpoint], into: list[Event]) -> None:
    async for item in stream:
        if isinstance(item, Event):
            into.append(item)


def identity(event: Event) -> tuple[object, ...]:
    return (event.type, event.sequence, event.attempt, event.number, event.create_time_us, str(event.body))


async def talk(context: Context) -> str:
    for number in range(5):
        await context.chunk(f"{context.attempt}.{number}")
        if number == 2:
            await context.checkpoint("op", number)
    if context.attempt < 3:
        raise ConnectionError
    return "said"


async def test_a_watch_from_every_cursor_gives_exactly_the_rest(database: Database, shop: Workshop) -> None:
    shop.script = talk
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.idempotent", {}, "k")
        whole = await watch(kernel, done.action.action_id)
        for number, event in enumerate(whole):
            rest = await watch(kernel, done.action.action_id, event.cursor)
            assert [identity(e) for e in whole[number + 1 :]] == [identity(e) for e in rest]
    life = [event.sequence for event in whole if event.sequence]
    assert list(range(1, len(life) + 1)) == life
    assert 15 == len(whole) - len(life)
    assert len(whole) == len({event.cursor for event in whole})
    assert EventType.SETTLED is whole[-1].type


async def test_a_live_watcher_sees_what_a_late_one_sees(database: Database, shop: Workshop) -> None:
    shop.script = talk
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.idempotent", {}, "k"))
        await shop.began.wait()
        action_id = (await only_action(kernel)).action_id
        live = await watch(kernel, action_id)
        await call
        late = await watch(kernel, action_id)

    def parted(found: list[Event]) -> list[list[object]]:
        return [[identity(e) for e in found if bool(e.sequence) is life] for life in (True, False)]

    assert parted(late) == parted(live)
    assert EventType.SETTLED is live[-1].type


async def test_what_an_attempt_said_lies_between_its_beginning_and_its_end(
    database: Database, shop: Workshop
) -> None:
    shop.script = talk
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.idempotent", {}, "k")
        names = named(await watch(kernel, done.action.action_id))
    said = [[f"{attempt}.{number}" for number in range(5)] for attempt in (1, 2, 3)]
    places = [[names.index(text) for text in texts] for texts in said]
    requeued = [place for place, name in enumerate(names) if name == "requeued"]
    started = [place for place, name in enumerate(names) if name == "attempt_started"]
    assert all(found == sorted(found) for found in places)
    assert max(places[0]) < requeued[0] < started[0] < min(places[1])
    assert max(places[1]) < requeued[1] < started[1] < min(places[2])
    assert max(places[2]) < names.index("settled")


async def test_the_receipts_of_an_action_are_a_chain_that_anybody_can_check(
    database: Database, shop: Workshop
) -> None:
    shop.script = talk
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.idempotent", {"order": 'ünï "quoted"\n'}, "k")
        async with kernel.journal.pool.connection() as connection:
            links = await events.list_receipts(connection, "acme", done.action.action_id)
    previous = b""
    for number, link in enumerate(links, 1):
        parts = (done.action.action_id, str(number), link.type, str(link.create_time_us), link.body)
        previous = hashlib.sha256(previous + "\n".join(parts).encode()).digest()
        assert (number, previous.hex()) == (link.sequence, link.receipt)
    assert previous.hex() == done.action.receipt_digest


async def test_ambiguous_is_not_the_end_of_a_watch(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as survivor, open_kernel(database.dsn, shop.app) as old:
        call = asyncio.create_task(run(old, "work.unsafe", {}, "k"))
        await shop.began.wait()
        await declare_dead(old)
        await rescue(survivor.journal)
        action_id = (await only_action(survivor)).action_id
        watching = asyncio.create_task(watch(survivor, action_id))
        await asyncio.sleep(0.2)
        assert not watching.done()
        shop.gate.set()
        names = named(await watching)
        await asyncio.gather(call, return_exceptions=True)
    assert ["admitted", "ambiguous", "settled"] == names


async def test_a_stream_of_an_ambiguous_ending_ends_with_it(database: Database, shop: Workshop) -> None:
    async def lost(context: Context) -> None:
        await context.chunk("sent")
        raise ConnectionError

    shop.script = lost
    found: list[Event] = []
    async with open_kernel(database.dsn, shop.app) as kernel:
        stream = execute_stream(kernel, call_of("work.unsafe", {}, "k"))
        with pytest.raises(EffectAmbiguous):
            await collect(stream, found)
    assert ["admitted", "sent", "ambiguous"] == named(found)


@pytest.mark.parametrize("cursor", ["garbage", "é", "AAAA", "=", "1.2.3", "x" * 256, "MS4w\x00"])
async def test_a_cursor_that_was_never_given_out_is_refused(
    database: Database, shop: Workshop, cursor: str
) -> None:
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.read", {})
        with pytest.raises(MalformedRequest):
            await watch(kernel, done.action.action_id, cursor)


async def test_a_cursor_of_another_action_or_ahead_of_this_one_is_refused(
    database: Database, shop: Workshop
) -> None:
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        first, second = [(await run(kernel, "work.read", {})).action for _ in range(2)]
        with pytest.raises(MalformedRequest):
            await watch(kernel, first.action_id, cursor_of(second))
        for ahead in (Position(first.sequence + 1), Position(1, first.attempt + 1, 1)):
            with pytest.raises(CursorExpired):
                await watch(kernel, first.action_id, encode(first.action_id, ahead))
        assert [] == await watch(kernel, first.action_id, cursor_of(first))


async def test_another_tenant_sees_no_event(database: Database, shop: Workshop) -> None:
    shop.gate.set()
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.read", {})
        with pytest.raises(NotFound):
            await anext(watch_action(kernel.journal, EVE, done.action.action_id, ""))


async def test_ten_thousand_chunks_reach_a_late_watcher_in_order_and_in_bounded_memory(
    database: Database, shop: Workshop
) -> None:
    count, size = 10_000, 4_000

    async def flood(context: Context) -> int:
        for begin in range(0, count, 250):
            await asyncio.gather(
                *(context.chunk(f"{number:05}" + "x" * size) for number in range(begin, begin + 250))
            )
        return count

    shop.script = flood
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.read", {}, time_left_seconds=60.0)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seen = 0
        async for item in watch_action(kernel.journal, ALICE, done.action.action_id, ""):
            assert isinstance(item, Event)
            if item.type is EventType.CHUNK:
                seen += 1
                assert (seen, f"{seen - 1:05}") == (item.number, item.body["text"][:5])
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert count == seen
    assert grown_kib < 24 * 1024


async def test_a_page_of_the_largest_chunks_is_bounded(database: Database, shop: Workshop) -> None:
    count, size = 120, 256 * 1024

    async def flood(context: Context) -> int:
        for _ in range(count):
            await context.chunk("x" * size)
        return count

    shop.script = flood
    async with open_kernel(database.dsn, shop.app) as kernel:
        done = await run(kernel, "work.read", {}, time_left_seconds=60.0)
        async with kernel.journal.pool.connection() as connection:
            page = await events.read(
                connection,
                tenant="acme",
                action_id=done.action.action_id,
                after_sequence=0,
                after_attempt=0,
                after_number=0,
                count_max=200,
                bytes_max=PAGE_BYTES_MAX,
            )
        whole = await watch(kernel, done.action.action_id)
    assert sum(len(stored.body) for stored in page) < PAGE_BYTES_MAX + 2 * size
    assert count == sum(event.type is EventType.CHUNK for event in whole)


async def test_a_slow_reader_holds_nobody_up_and_loses_nothing(database: Database, shop: Workshop) -> None:
    async def flood(context: Context) -> str:
        for number in range(600):
            await context.chunk(str(number))
        return "said"

    shop.script = flood
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.read", {}))
        await shop.began.wait()
        slow = watch_action(kernel.journal, ALICE, (await only_action(kernel)).action_id, "")
        first = await anext(slow)
        await call
        rest = [item async for item in slow]
    assert isinstance(first, Event)
    assert [str(n) for n in range(600)] == [n for n in named(rest) if n.isdigit()]  # type: ignore[arg-type]


async def test_a_cancel_in_the_middle_of_a_stream_keeps_what_was_said(
    database: Database, shop: Workshop
) -> None:
    said: list[str] = []

    async def talks_on(context: Context) -> None:
        while True:
            text = str(len(said))
            await context.chunk(text)
            said.append(text)

    shop.script = talks_on
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.read", {}, "k"))
        await until(lambda: len(said) > 20)
        action = await only_action(kernel)
        await cancel_action(kernel.engine, ALICE, action.action_id, "enough")
        await asyncio.gather(call, return_exceptions=True)
        found = await watch(kernel, action.action_id)
    chunks = [event for event in found if event.type is EventType.CHUNK]
    assert said == named(chunks)[: len(said)]
    assert list(range(1, len(chunks) + 1)) == [event.number for event in chunks]
    assert EventType.SETTLED is found[-1].type


async def test_chunks_said_at_once_by_several_tasks_do_not_wait_for_the_next_one(
    database: Database, shop: Workshop
) -> None:
    async def chorus(context: Context) -> None:
        await asyncio.gather(*(context.chunk(str(number)) for number in range(40)))
        await shop.gate.wait()

    shop.script = chorus
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.read", {}))
        await shop.began.wait()
        watcher = watch_action(kernel.journal, ALICE, (await only_action(kernel)).action_id, "")
        async with asyncio.timeout(5):
            live = [await anext(watcher) for _ in range(41)]
        shop.gate.set()
        await call
    assert [str(n) for n in range(40)] == named([e for e in live if isinstance(e, Event)])[1:]


async def test_a_quiet_action_tells_its_watcher_where_he_stands(database: Database, shop: Workshop) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        object.__setattr__(kernel.journal, "idle_checkpoint_seconds", 0.2)
        call = asyncio.create_task(run(kernel, "work.read", {}))
        await shop.began.wait()
        watcher = watch_action(kernel.journal, ALICE, (await only_action(kernel)).action_id, "")
        admitted, idle = await anext(watcher), await anext(watcher)
        shop.gate.set()
        await call
    assert isinstance(admitted, Event)
    assert isinstance(idle, IdleCheckpoint)
    assert admitted.cursor == idle.cursor


async def test_old_events_are_marked_as_replayed_and_new_ones_are_not(
    database: Database, shop: Workshop
) -> None:
    async with open_kernel(database.dsn, shop.app) as kernel:
        call = asyncio.create_task(run(kernel, "work.read", {}))
        await shop.began.wait()
        action_id = (await only_action(kernel)).action_id
        watching = asyncio.create_task(watch(kernel, action_id))
        await asyncio.sleep(0.1)
        shop.gate.set()
        await call
        live, late = await watching, await watch(kernel, action_id)
    assert [True, False] == [event.replayed for event in live]
    assert [True, True] == [event.replayed for event in late]


def test_a_cursor_survives_transport_as_plain_text() -> None:
    text = encode("00000000-0000-7000-8000-000000000000", Position(2**40, 7, 2**53))
    assert text.isascii()
    assert len(text) < 128
    assert base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).startswith(b"1.")
