"""What one process tells is heard by the others, and not by itself; whoever lost the line is told that it did."""

from __future__ import annotations

import asyncio
from functools import partial

import asyncpg
import pytest

from placet_server.model.errors import StoreUnavailable
from placet_server.store import instance
from placet_server.store.connection import ConnectionOptions, connect
from placet_server.store.notify import PAYLOAD_BYTES_MAX, NoticeChannel
from tests.postgres import Database


class Listener:
    """One process's ear."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.lost = asyncio.Event()

    async def open(self, dsn: str) -> NoticeChannel:
        options = ConnectionOptions(application_name="placet wake")
        return await NoticeChannel.open(partial(connect, dsn, options), self.heard.put_nowait, self.lost.set)


@pytest.mark.both_servers
async def test_others_hear_what_is_sent_and_the_sender_does_not(database: Database) -> None:
    ears = [Listener() for _ in range(3)]
    channels = [await ear.open(database.dsn) for ear in ears]
    await channels[0].send(["one", "x" * PAYLOAD_BYTES_MAX])
    for ear in ears[1:]:
        assert ["one", "x" * PAYLOAD_BYTES_MAX] == [await ear.heard.get(), await ear.heard.get()]
    await channels[1].send(["two"])
    assert "two" == await asyncio.wait_for(ears[0].heard.get(), 5)
    assert ears[0].heard.empty()
    for channel in channels:
        channel.close()


@pytest.mark.both_servers
async def test_a_session_that_is_ended_is_told_as_lost(database: Database) -> None:
    ear = Listener()
    channel = await ear.open(database.dsn)
    admin = await asyncpg.connect(database.dsn)
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name = 'placet wake'"
    )
    await asyncio.wait_for(ear.lost.wait(), 5)
    with pytest.raises(StoreUnavailable):
        await channel.send(["nobody"])
    channel.close()
    await admin.close()


async def test_closing_on_purpose_is_no_loss(database: Database) -> None:
    ear = Listener()
    channel = await ear.open(database.dsn)
    channel.close()
    await asyncio.sleep(0.05)
    assert not ear.lost.is_set()


async def test_others_are_the_living_but_oneself(database: Database) -> None:
    own, other = instance.this_boot("1"), instance.this_boot("1")
    connection = await connect(database.dsn)
    channel = await Listener().open(database.dsn)
    await instance.register(connection, own)
    assert not await channel.has_others(own.boot_id)
    await instance.register(connection, other)
    assert await channel.has_others(own.boot_id)
    await instance.retire(connection, other.boot_id)
    assert not await channel.has_others(own.boot_id)
    channel.close()
    await connection.close()
