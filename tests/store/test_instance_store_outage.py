"""An outage of the store is a gap that rescuers see, and kills no boot by itself."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from placet_server.embedded.server import EmbeddedPostgres
from placet_server.loops.instance_heartbeat import InstanceHeartbeat
from placet_server.store.instance import Boot, is_alive, register, this_boot
from placet_server.store.migrate import migrate
from placet_server.store.pool import Pool
from tests.store.support import frozen, wait_until_async

LEASE_SECONDS = 0.6


@pytest.fixture
def server(data_folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(data_folder, fsync=False) as own:
        yield own


async def start_boot(dsn: str) -> Boot:
    await migrate(dsn)
    boot = this_boot("1", LEASE_SECONDS)
    async with Pool(dsn) as pool, pool.connection() as connection:
        await register(connection, boot)
    return boot


async def test_a_frozen_store_opens_a_gap_and_nobody_dies_of_it(server: EmbeddedPostgres) -> None:
    boot = await start_boot(server.dsn)
    dead = threading.Event()
    heartbeat = InstanceHeartbeat(server.dsn, boot, on_dead=dead.set)
    heartbeat.start()
    await wait_until_async(lambda: heartbeat.store_ok_for(LEASE_SECONDS))

    with frozen(server):
        await wait_until_async(lambda: heartbeat.store_ok_since is None)
    thawed = time.monotonic()

    await wait_until_async(lambda: heartbeat.store_ok_since is not None)
    since = heartbeat.store_ok_since
    assert since is not None
    assert since >= thawed
    assert not heartbeat.store_ok_for(LEASE_SECONDS)
    await wait_until_async(lambda: heartbeat.store_ok_for(LEASE_SECONDS))
    async with Pool(server.dsn) as pool, pool.connection() as connection:
        assert await is_alive(connection, boot.boot_id)
    assert not dead.is_set()
    heartbeat.stop()


async def test_a_stop_while_the_store_is_frozen_is_bounded(server: EmbeddedPostgres) -> None:
    boot = await start_boot(server.dsn)
    heartbeat = InstanceHeartbeat(server.dsn, boot, on_dead=lambda: None)
    heartbeat.start()
    await wait_until_async(lambda: heartbeat.store_ok_since is not None)
    with frozen(server):
        start = time.monotonic()
        heartbeat.stop()
        # A busy machine is slow; what waits for a frozen server waits for ever.
        assert time.monotonic() - start < 20
