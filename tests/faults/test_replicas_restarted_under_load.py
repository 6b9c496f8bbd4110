"""One replica after the other is replaced under load: every key has one effect and its answer, nothing is in doubt, and
what is watched goes on elsewhere."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from placet.aio import AsyncClient
from tests.faults.caller import Caller, check_chain, state_of
from tests.faults.family import Family
from tests.faults.processes import POLL_SECONDS, WAIT_SECONDS, Provider, Server, Servers
from tests.postgres import Database

CALLERS = 6
# What a server that leaves says to a caller, or does not get to say: in lower case are words of its transport.
ELSEWHERE = {"DRAINING", "STORE_UNAVAILABLE", "ATTEMPT_LOST", "WAIT_EXPIRED", "unavailable", "cancelled"}


class Load:
    """Calls one after the other, each with a key of its own, sent again elsewhere until it is answered."""

    def __init__(self, call: Callable[[Any], Caller], servers: Sequence[Server | Family]) -> None:
        self._call = call
        self._callers = [call(server) for server in servers]
        self.going = True
        self.keys: list[tuple[str, str]] = []
        self.seen: set[str] = set()

    def replace(self, place: int, server: Server | Family) -> None:
        self._callers[place] = self._call(server)

    async def run(self, number: int) -> None:
        name = ("refund", "send", "charge")[number % 3]
        rounds = 0
        while self.going:
            key = f"{name}-{number}-{rounds}"
            await self._until_answered(f"till.{name}", {"order": key}, key, rounds)
            self.keys.append((f"till.{name}", key))
            rounds += 1
            # As many as the processors can would prove no more, and hold up the servers that start.
            await asyncio.sleep(POLL_SECONDS)

    async def _until_answered(self, capability: str, input: Any, key: str, place: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                caller = self._callers[place % len(self._callers)]
                answer = await caller.execute(capability, input, key)
                self.seen.add(answer.word)
                if answer.word == "SUCCEEDED":
                    return
                assert answer.word in ELSEWHERE, answer
                place += 1
                await asyncio.sleep(POLL_SECONDS)


async def check_effects(load: Load, client: AsyncClient, provider: Provider, refunds: int) -> None:
    """One for each key, and for so many refunds besides; and nothing is open or in doubt."""
    counts = {
        name: sum(capability == f"till.{name}" for capability, _ in load.keys)
        for name in ("refund", "send", "charge")
    }
    assert min(counts.values()) > 0
    assert {
        "refunds": counts["refund"] + refunds,
        "charges": counts["charge"],
        "messages": counts["send"],
    } == provider.counts()
    unsettled = client.list(states=["AMBIGUOUS", "QUEUED", "RUNNING"])
    assert [] == [action.action_id async for action in unsettled]


async def test_every_key_has_one_effect_and_nothing_is_in_doubt(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "drain_seconds": 20}
    running = [servers.start(wait=False, **store) for _ in range(2)]
    load = Load(call, [server.until_ready() for server in running])
    tasks = [asyncio.create_task(load.run(number)) for number in range(CALLERS)]
    submitting = AsyncClient.connect(running[1].target, token=running[1].token)
    submitted = [
        (
            await submitting.submit(
                "till.refund", {"order": f"S-{number}"}, key=f"s-{number}", delay=0.1 * number
            )
        )
        for number in range(30)
    ]
    await submitting.close()
    for place in range(2):
        # The next one is there before the old one leaves, as a rolling update does it.
        fresh = await asyncio.to_thread(servers.start, **store)
        running[place].signal(signal.SIGTERM)
        assert 0 == await asyncio.to_thread(running[place].ended)
        load.replace(place, fresh)
        await asyncio.sleep(0.3)
        running[place] = fresh
    load.going = False
    await asyncio.gather(*tasks)
    client = AsyncClient.connect(running[0].target, token=running[0].token)
    ended = [await client.wait(each.action_id) for each in submitted]
    assert {"SUCCEEDED"} == {state_of(action) for action in ended}
    await check_effects(load, client, provider, len(submitted))
    await check_chain(database.dsn, await client.get(ended[-1].action_id))
    await client.close()


async def test_who_watches_goes_on_at_another_server_and_misses_nothing(
    database: Database, servers: Servers, provider: Provider
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "drain_seconds": 20}
    leaving, working = (servers.start(**store, queue_slots=slots) for slots in (0, 64))
    worker = AsyncClient.connect(working.target, token=working.token)
    watcher = AsyncClient.connect(leaving.target, token=leaving.token)
    provider.hold("before")
    submitted = await worker.submit("till.refund", {"order": "A-1"}, key="k")
    await provider.until_held(1, [])
    seen, cursor = [], ""
    stream = watcher.watch(submitted.action_id)
    async for event in stream:
        seen.append(event.sequence)
        cursor = stream.cursor
        if event.WhichOneof("event") == "effect_started":
            break
    await stream.aclose()
    leaving.signal(signal.SIGTERM)
    assert 0 == await asyncio.to_thread(leaving.ended)
    provider.release()
    async for event in worker.watch(submitted.action_id, after=cursor):
        seen.append(event.sequence)
    whole = [event.sequence async for event in worker.watch(submitted.action_id)]
    assert whole == seen
    for client in (worker, watcher):
        await client.close()


async def test_a_family_gives_way_to_the_next_and_every_key_has_one_effect(
    database: Database,
    servers: Servers,
    provider: Provider,
    open_folder: Path,
    call: Callable[[Any], Caller],
) -> None:
    families: list[Family] = []

    def family() -> Family:
        number = len(families)
        token_file = open_folder / f"family-token-{number}"
        fields: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "drain_seconds": 20}
        environment = servers.variables(token_file, fields)
        families.append(Family(environment, open_folder / f"family-log-{number}", token_file, 2))
        return families[-1].until_ready()

    try:
        old = await asyncio.to_thread(family)
        load = Load(call, [old])
        tasks = [asyncio.create_task(load.run(number)) for number in range(CALLERS)]
        submitting = AsyncClient.connect(old.target, token=old.token)
        submitted = [
            await submitting.submit(
                "till.refund", {"order": f"S-{number}"}, key=f"s-{number}", delay=0.1 * number
            )
            for number in range(20)
        ]
        await submitting.close()
        new = await asyncio.to_thread(family)
        old.signal(signal.SIGTERM)
        load.replace(0, new)
        assert 0 == await asyncio.to_thread(old.ended)
        await asyncio.sleep(0.3)
        load.going = False
        await asyncio.gather(*tasks)
        client = AsyncClient.connect(new.target, token=new.token)
        assert {"SUCCEEDED"} == {state_of(await client.wait(each.action_id)) for each in submitted}
        await check_effects(load, client, provider, len(submitted))
        await client.close()
    finally:
        for each in families:
            each.close()
