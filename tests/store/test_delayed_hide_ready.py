"""What is not due yet must not stand before what is, however much of it there is."""

import asyncio

import pytest

from placet_server.store import queue
from placet_server.store.connection import Connection
from tests.postgres import Database
from tests.store.line import LINE, claim, claimed, open_boot, places, row, submit


async def delay(connection: Connection, boot_id: str, count: int) -> None:
    """So many of the best priority, due in an hour."""
    for begin in range(1, count + 1, 500):
        rows = (row(n, priority=0, delay_seconds=3600.0) for n in range(begin, min(begin + 500, count + 1)))
        await submit(connection, boot_id, *rows)


@pytest.mark.parametrize("count", [65, 10_000])
async def test_one_that_is_ready_is_found_among_thousands_that_are_not(
    database: Database, count: int
) -> None:
    connection, boot_id = await open_boot(database)
    await delay(connection, boot_id, count)
    await submit(connection, boot_id, row(count + 1, priority=9))
    (line,) = await queue.list_lines(connection, after=None, count_max=10)
    assert (LINE, 9) == (line.line, line.priority)
    assert [count + 1] == claimed(await claim(connection, boot_id, 10))
    assert [] == await queue.list_lines(connection, after=None, count_max=10)
    assert {} == await queue.promote(connection, 500, None)
    assert count == len((await places(connection))["queue_delayed"])
    await connection.close()


async def test_two_sweeps_at_once_move_everything_once(database: Database) -> None:
    one, boot_id = await open_boot(database)
    other, _ = await open_boot(database)
    await delay(one, boot_id, 2000)
    await one.execute("update queue_delayed set ready_time = now()")

    async def sweep(connection: Connection) -> int:
        total = 0
        while moved := await queue.promote(connection, 100, None):
            total += sum(moved.values())
        return total

    assert 2000 == sum(await asyncio.gather(sweep(one), sweep(other)))
    assert {"queue_ready": list(range(1, 2001)), "queue_delayed": [], "dead_letters": []} == await places(one)
    await one.close()
    await other.close()


async def test_what_became_due_comes_by_priority_and_then_by_time(database: Database) -> None:
    connection, boot_id = await open_boot(database)
    await submit(
        connection,
        boot_id,
        row(1, priority=5),
        row(2, priority=5, ready_time_us=2_000_000),
        row(3, priority=5, ready_time_us=1_000_000),
        row(4, priority=1, delay_seconds=0.001),
    )
    await connection.execute("select pg_sleep(0.002)")
    await queue.promote(connection, 10, None)
    order = [claimed(await claim(connection, boot_id, 1))[0] for _ in range(4)]
    # A time that has passed is no earlier than the submission.
    assert [4, 1, 2, 3] == order
    await connection.close()
