"""The clock of a server's machine jumps by an hour: leases, rescues and keys go by the store's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.caller import Caller, check_chain
from tests.faults.processes import Provider, Server, Servers, wait_until
from tests.postgres import Database

LIBRARIES = ("/usr/lib", "/usr/local/lib", "/opt/homebrew/lib")
HOUR = 3600
# A wall clock that is read from a file makes a process slow, and its first heartbeats late.
JUMP_LEASE_SECONDS = 6.0


@pytest.fixture
def clock(open_folder: Path) -> tuple[Path, dict[str, str]]:
    """A file that says how far a process's wall clock is off, and the variables that make it read the file."""
    found = (path for place in LIBRARIES for path in sorted(Path(place).rglob("libfaketimeMT.so*")))
    library = next(found, None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    file = open_folder / "clock"
    file.write_text("+0s\n")
    return file, {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        # As on a machine whose clock is set: what counts seconds is not touched.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_a_jump_costs_no_lease_rescues_nothing_and_expires_no_key(
    jump: int,
    clock: tuple[Path, dict[str, str]],
    database: Database,
    servers: Servers,
    provider: Provider,
    call: Callable[[Server], Caller],
) -> None:
    file, variables = clock
    store: dict[str, Any] = {
        "dsn": database.dsn,
        "dsn_durability": "ephemeral",
        "lease_seconds": JUMP_LEASE_SECONDS,
    }
    jumping = servers.start(variables=variables, wait=False, **store)
    steady = servers.start(**store)
    caller, other = call(jumping.until_ready(60)), call(steady)
    before = await caller.execute("till.brief", {"order": "A-1"}, "before")
    provider.hold("after")
    running = [
        asyncio.ensure_future(each.execute("till.send", {"order": "A-2"}, f"running {place}"))
        for place, each in enumerate((caller, other))
    ]
    await provider.until_held(2, running)
    file.write_text(f"{jump:+d}s\n")
    began = time.time()
    told = await caller.execute("till.clock", {}, "told")
    assert abs(float(told.output) - time.time() - jump) < 60
    # Long enough for either to take the other for dead.
    await asyncio.to_thread(wait_until, lambda: time.time() - began > 1.5 * JUMP_LEASE_SECONDS, "a lease")
    provider.release()
    answers = await asyncio.gather(*running)
    assert ["SUCCEEDED"] * 2 == [answer.word for answer in answers]
    assert [1, 1] == [answer.action.attempt for answer in answers if answer.action is not None]
    assert [None, None] == [jumping.code, steady.code]

    # Its key lives for a minute of the store's time.
    again = [await each.execute("till.brief", {"order": "A-1"}, "before") for each in (caller, other)]
    assert [(before.output, True)] * 2 == [(answer.output, answer.attached) for answer in again]
    assert abs((await caller.info()).store_time.seconds - time.time()) < 60
    for answer in answers:
        assert answer.action is not None
        assert abs(answer.action.create_time.seconds - time.time()) < 60
        await check_chain(database.dsn, answer.action)
    assert {"refunds": 1, "charges": 0, "messages": 2} == provider.counts()
