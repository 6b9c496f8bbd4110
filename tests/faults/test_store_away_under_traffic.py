"""The store freezes, restarts, refuses or is full under traffic: typed answers, nothing lost, nothing done twice."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

from placet_server.store.connection import connect
from tests.faults.caller import Answer, Caller, check_chain
from tests.faults.processes import (
    LEASE_SECONDS,
    Provider,
    Server,
    Servers,
    health_of,
    until_health,
    wait_until,
)
from tests.faults.store_owner import Store, frozen, stopped
from tests.postgres import Kind

LANES = 20
# Longer than a store is away in the suite, with all that is waited for meanwhile, also on a busy machine.
CALL_SECONDS = 45.0
TRIES = 5
# How long it is away once everybody knows: a lease, or with PLACET_LONG=1 a minute, which is twenty.
AWAY_SECONDS = 60.0 if os.environ.get("PLACET_LONG") == "1" else LEASE_SECONDS
# What is on its way all the while has the time for it.
LONG_SECONDS = 60.0 + AWAY_SECONDS
TYPED = {
    "SUCCEEDED",
    "STORE_UNAVAILABLE",
    "WAIT_EXPIRED",
    "DEADLINE_EXCEEDED",
    "EFFECT_AMBIGUOUS",
}


@pytest.mark.timeout(120 + AWAY_SECONDS)
# One that stands still shows most by TCP, where connections to it go on being accepted.
@pytest.mark.parametrize(
    ("outage", "postgres_kind"),
    [(frozen, "installed"), (stopped, "embedded")],
    indirect=["postgres_kind"],
    scope="session",
)
async def test_traffic_goes_on_after_the_store_was_away_for_longer_than_a_lease(
    outage: Callable[[Store], AbstractAsyncContextManager[None]],
    store: Store,
    servers: Servers,
    provider: Provider,
    call: Callable[[Server], Caller],
) -> None:
    pair = [servers.start(dsn=store.dsn, wait=False) for _ in range(2)]
    callers = [call(server.until_ready()) for server in pair]
    gate = uuid.uuid4().hex
    # On its way at the provider all the time: nobody may take it for lost.
    through = [
        asyncio.ensure_future(
            caller.execute(
                "till.through",
                {"order": gate},
                f"through {place}",
                seconds=LONG_SECONDS,
                attempt_timeout=LONG_SECONDS,
            )
        )
        for place, caller in enumerate(callers)
    ]
    traffic = Traffic(callers)
    running = [asyncio.ensure_future(traffic.lane(number)) for number in range(LANES)]
    await asyncio.to_thread(wait_until, lambda: len(traffic.last) > 2 * LANES, "traffic")
    begin = asyncio.get_running_loop().time()
    async with outage(store):
        await asyncio.gather(*(until_health(server, "storage", "NOT_SERVING") for server in pair))
        refused = await callers[0].execute(
            "till.send", {"order": "refused"}, "refused", seconds=20, patient=False
        )
        assert refused.error is not None
        assert ("STORE_UNAVAILABLE", "UNAVAILABLE") == (refused.word, refused.error.code)
        assert ["SERVING", "SERVING"] == [health_of(server, "live") for server in pair]
        # Both leases run out in the dark.
        await asyncio.sleep(AWAY_SECONDS)
    await asyncio.gather(*(until_health(server, "storage", "SERVING") for server in pair))
    away_seconds = asyncio.get_running_loop().time() - begin
    await asyncio.sleep(2 * LEASE_SECONDS)
    traffic.over = True
    await asyncio.gather(*running)
    provider.let_go(gate)
    assert ["SUCCEEDED", "SUCCEEDED"] == [answer.word for answer in await asyncio.gather(*through)]
    assert [None, None] == [server.code for server in pair]

    assert "STORE_UNAVAILABLE" in traffic.words
    print(*(server.log() for server in pair))
    # Whoever's time is over while nothing can be written hears it from his own clock.
    is_over = away_seconds + LEASE_SECONDS > CALL_SECONDS
    assert set() == traffic.words - TYPED - ({"deadline_exceeded"} if is_over else set())
    assert CALL_SECONDS + 2 > traffic.seconds_max
    again = await traffic.send_again()
    _nothing_acknowledged_is_lost(traffic.last, again)
    _nothing_is_done_twice(again, provider)
    for key in list(again)[:: max(1, len(again) // 10)]:
        action = await callers[0].by_key(capability_of(key), key)
        assert action is not None
        await check_chain(store.dsn, action)


def capability_of(key: str) -> str:
    return f"till.{key.split()[0]}"


class Traffic:
    """Calls in lanes, half of them repeatable; a refused one is sent again, as its caller would."""

    def __init__(self, callers: list[Caller]) -> None:
        self._callers = callers
        self.over = False
        self.last: dict[str, Answer] = {}
        self.words: set[str] = set()
        self.seconds_max = 0.0

    async def lane(self, number: int) -> None:
        turn = 0
        while not self.over:
            key = f"{('refund', 'send')[number % 2]} {number} {turn}"
            answer = await self._send(key, number, CALL_SECONDS)
            self.last[key] = answer
            self.words.add(answer.word)
            self.seconds_max = max(self.seconds_max, answer.seconds)
            if answer.word == "SUCCEEDED":
                turn += 1
            # A thousand calls a second would prove no more.
            await asyncio.sleep(0.2)
            if answer.word in ("EFFECT_AMBIGUOUS", "WAIT_EXPIRED"):
                turn += 1

    async def send_again(self) -> dict[str, Answer]:
        keys = list(self.last)
        sent = [
            self._callers[place % 2].execute(capability_of(key), {"order": key}, key)
            for place, key in enumerate(keys)
        ]
        return dict(zip(keys, await asyncio.gather(*sent), strict=True))

    async def _send(self, key: str, number: int, seconds: float) -> Answer:
        caller = self._callers[number // 2 % 2]
        return await caller.execute(capability_of(key), {"order": key}, key, seconds=seconds, patient=False)


def _nothing_acknowledged_is_lost(last: dict[str, Answer], again: dict[str, Answer]) -> None:
    for key, answer in last.items():
        if answer.word == "SUCCEEDED":
            assert (key, answer.output, True) == (key, again[key].output, again[key].attached)
    # Nor is anything in doubt.
    assert {"SUCCEEDED"} == {answer.word for answer in again.values()}


def _nothing_is_done_twice(again: dict[str, Answer], provider: Provider) -> None:
    sent = sum(key.startswith("send") for key in again)
    counts = provider.counts()
    # Two went through the outage.
    assert (len(again) - sent, sent + 2) == (counts["refunds"], counts["messages"])


@pytest.fixture
def small_disk(open_folder: Path) -> Iterator[Path]:
    """A disk of a few megabytes more than an empty store needs."""
    disk = open_folder / "disk"
    disk.mkdir(mode=0o755)
    mount = ["mount", "-t", "tmpfs", "-o", "size=150m,mode=755", "placet-test", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a small disk here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_a_full_disk_is_a_typed_refusal_and_forgotten_when_there_is_room(
    small_disk: Path,
    postgres_kind: Kind,
    servers: Servers,
    provider: Provider,
    call: Callable[[Server], Caller],
) -> None:
    limits = {"max_wal_size": "32MB", "min_wal_size": "32MB", "shared_buffers": "16MB"}
    with closing(Store(small_disk / "data", postgres_kind, **limits)) as store:
        store.start()
        server = servers.start(dsn=store.dsn)
        caller = call(server)
        answers = {"small": await caller.execute("till.refund", {"order": "small"}, "small")}
        await _switch_log(store.dsn)
        filler = small_disk / "filler"
        _fill(filler)
        while "STORE_UNAVAILABLE" not in {answer.word for answer in answers.values()}:
            key = f"{len(answers):05}" + "x" * 100
            answers[key] = await caller.execute(
                "till.refund", {"order": _long(key)}, key, seconds=4, patient=False
            )
            assert len(answers) < 2000
        assert set() == {answer.word for answer in answers.values()} - TYPED
        assert "SERVING" == health_of(server, "live")
        filler.unlink()
        await _until_stored(caller, store)
        await until_health(server, "storage", "SERVING")
        for key, answer in answers.items():
            again = await caller.execute("till.refund", {"order": _long(key)}, key)
            assert (key, "SUCCEEDED") == (key, again.word)
            assert answer.word != "SUCCEEDED" or (answer.output, True) == (again.output, again.attached)
        assert len(answers) == provider.counts()["refunds"]
        assert None is server.code


def _long(key: str) -> str:
    """Hard to compress, so that the table must soon grow."""
    if key == "small":
        return key
    return "".join(hashlib.sha256(f"{key}{number}".encode()).hexdigest() for number in range(1000))


async def _until_stored(caller: Caller, store: Store) -> None:
    """Where its own log found no room either, Postgres has ended, and is started as whoever runs it would."""
    for _ in range(TRIES):
        if "SUCCEEDED" == (await caller.execute("till.look", {}, "look", seconds=CALL_SECONDS / TRIES)).word:
            return
        if not await asyncio.to_thread(store.process_ids):
            await asyncio.to_thread(store.stop)
            await asyncio.to_thread(store.start)
    raise AssertionError("nothing is stored, though there is room")


async def _switch_log(dsn: str) -> None:
    """A fresh segment of the log, so that it is the table that finds no room."""
    connection = await connect(dsn)
    try:
        await connection.execute("select pg_switch_wal()")
    finally:
        await connection.close()


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
