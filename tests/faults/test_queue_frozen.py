"""A server that stands still with submitted work, or while it asks for some, and a store that goes away under claims:
the work is done once, and whoever was given up changes nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from placet.aio import AsyncClient
from placet_server.store.connection import connect
from tests.faults.caller import Caller, check_chain, effect_of, state_of, until_all_ended
from tests.faults.processes import LEASE_SECONDS, POLL_SECONDS, WAIT_SECONDS, Provider, Server, Servers
from tests.faults.store_owner import Store, frozen, stopped
from tests.postgres import Database

EXIT_LOST = 70
TAKEN_OVER = ("look", "refund", "ponder")
GIVEN_UP = ("charge", "send", "send_unmarked")


async def test_what_a_frozen_server_had_taken_is_taken_over_by_class(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """Beside it another one has a long job all the while, which nobody takes for lost; and an operator wants to try
    again what is not known to have failed."""
    # Who is not frozen keeps its own, however busy the machine.
    lease = 2 * LEASE_SECONDS
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "lease_seconds": lease}
    keeper = servers.start(queue_slots=0, **store)
    storing = call(keeper)
    sleeper = servers.start(**store)
    provider.hold("before")
    for name in TAKEN_OVER + GIVEN_UP:
        told: Any = {"wait": True} if name == "look" else {"order": f"A-{name}"}
        assert "SUCCEEDED" == (await storing.submit(f"till.{name}", told, name)).word
    await provider.until_held(5, [])
    await storing.until("till.look", "look", "RUNNING")
    operator = AsyncClient.connect(keeper.target, token=keeper.token)
    # So that what is ready again stays so until it was looked at.
    await operator.pause_queue("default")
    sleeper.signal(signal.SIGSTOP)
    begin = time.monotonic()
    other = call(servers.start(**store))
    through = await other.submit("till.through", {"order": database.name}, "long", queue="long")
    assert "SUCCEEDED" == through.word

    judged = {n: await other.until(f"till.{n}", n, "QUEUED", "AMBIGUOUS") for n in TAKEN_OVER + GIVEN_UP}
    assert dict.fromkeys(GIVEN_UP, "AMBIGUOUS UNKNOWN") | {
        "look": "QUEUED -",
        "refund": "QUEUED UNKNOWN",
        "ponder": "QUEUED NOT_DONE",
    } == {name: f"{state_of(action)} {effect_of(action)}" for name, action in judged.items()}
    await operator.resume_queue("default")
    await operator.close()
    provider.release()
    taken = {name: await other.until(f"till.{name}", name, "SUCCEEDED") for name in TAKEN_OVER}

    sleeper.signal(signal.SIGCONT)
    given_up = judged["charge"].action_id
    rules = set()
    while sleeper.code is None:
        assert time.monotonic() - begin < WAIT_SECONDS
        rules.add(await other.redrive(given_up))
        await asyncio.sleep(POLL_SECONDS)
    assert EXIT_LOST == sleeper.code
    assert rules <= {"effect_ambiguous", "effect_done"}
    for name in TAKEN_OVER:
        after = await other.get(judged[name].action_id)
        assert (name, 2, taken[name].receipt_digest) == (name, after.attempt, after.receipt_digest)
    for name in GIVEN_UP:
        after = await other.get(judged[name].action_id)
        assert (name, 1) == (name, after.attempt)
        assert state_of(after) in ("AMBIGUOUS", "SUCCEEDED")
        await check_chain(database.dsn, after)

    await asyncio.sleep(max(0.0, 1.5 * lease - (time.monotonic() - begin)))
    provider.let_go(database.name)
    long = await other.until("till.through", "long", "SUCCEEDED")
    assert 1 == long.attempt
    # The one of `refund`, and the two equal ones of `ponder`, which the provider knows by their key.
    assert {"refunds": 2, "charges": 2, "messages": 4} == provider.counts()


async def test_what_a_frozen_server_had_asked_for_it_never_begins(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """Its claim is carried out while it stands still, and its answer lies there until it has long been given up."""
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    storing = call(servers.start(queue_slots=0, **store))
    names = ("send", "send_unmarked", "refund_unmarked", "look")
    for name in names:
        told = {} if name == "look" else {"order": f"A-{name}"}
        assert "SUCCEEDED" == (await storing.submit(f"till.{name}", told, name)).word
    connection = await connect(database.dsn)
    try:
        async with connection.transaction():
            await connection.execute("select from actions for update")
            sleeper = servers.start(wait=False, **store)
            async with asyncio.timeout(WAIT_SECONDS):
                while not await connection.fetchval(
                    "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                    " and application_name = 'placet queue' and datname = current_database()"
                ):
                    await connection.execute("select pg_stat_clear_snapshot()")
                    await asyncio.sleep(POLL_SECONDS)
            sleeper.signal(signal.SIGSTOP)
        for name in names:
            await storing.until(f"till.{name}", name, "RUNNING")
    finally:
        await connection.close()
    other = call(servers.start(**store))
    ended = {name: await other.until(f"till.{name}", name, "SUCCEEDED", "AMBIGUOUS") for name in names}
    sleeper.signal(signal.SIGCONT)
    assert EXIT_LOST == await asyncio.to_thread(sleeper.ended)
    assert {"send": "SUCCEEDED 2", "refund_unmarked": "SUCCEEDED 2", "look": "SUCCEEDED 2"} | {
        # Nobody sees whether it was begun.
        "send_unmarked": "AMBIGUOUS 1"
    } == {name: f"{state_of(action)} {action.attempt}" for name, action in ended.items()}
    for action in ended.values():
        assert action.receipt_digest == (await other.get(action.action_id)).receipt_digest
    assert {"refunds": 1, "charges": 0, "messages": 1} == provider.counts()


@pytest.mark.parametrize("outage", [frozen, stopped])
async def test_a_store_that_goes_away_under_claims_loses_nothing_and_repeats_nothing(
    outage: Callable[[Store], AbstractAsyncContextManager[None]],
    store: Store,
    servers: Servers,
    provider: Provider,
    call: Callable[[Server], Caller],
) -> None:
    pair = [servers.start(dsn=store.dsn, wait=False, lease_seconds=12, queue_slots=3) for _ in range(2)]
    callers = [call(server.until_ready()) for server in pair]
    stored: dict[str, str] = {}
    refused: set[str] = set()
    over = asyncio.Event()

    async def submit(lane: int) -> None:
        turn = 0
        while not over.is_set():
            name = ("send", "refund", "send_unmarked", "look")[turn % 4]
            key, told = f"{lane}-{turn}", {} if name == "look" else {"order": f"{lane}"}
            answer = await callers[lane % 2].submit(f"till.{name}", told, key, seconds=2)
            if answer.word == "SUCCEEDED":
                stored[key] = name
            refused.add(answer.word)
            turn += answer.word == "SUCCEEDED"
            await asyncio.sleep(0.05)

    lanes = [asyncio.ensure_future(submit(lane)) for lane in range(6)]
    await asyncio.sleep(1)
    async with outage(store):
        await asyncio.sleep(5)
    await asyncio.sleep(1)
    over.set()
    await asyncio.gather(*lanes)
    ended = await until_all_ended(store.dsn)
    assert [None, None] == [server.code for server in pair]
    assert refused <= {"SUCCEEDED", "STORE_UNAVAILABLE", "deadline_exceeded"}
    assert len(refused) > 1
    print(ended, provider.counts(), refused, *(server.log()[-3000:] for server in pair))
    kinds = await _ended_by_capability(store.dsn)
    assert len(stored) <= sum(kinds.values())
    for name in ("look", "refund"):
        assert {"SUCCEEDED"} == {state for capability, state in kinds if capability == f"till.{name}"}
    assert kinds["till.refund", "SUCCEEDED"] == provider.counts()["refunds"]
    sure = sum(n for (name, state), n in kinds.items() if "send" in name and state == "SUCCEEDED")
    unknown = sum(n for (_, state), n in kinds.items() if state == "AMBIGUOUS")
    assert sure <= provider.counts()["messages"] <= sure + unknown
    for key, name in list(stored.items())[:: max(1, len(stored) // 10)]:
        action = await callers[0].by_key(f"till.{name}", key)
        assert action is not None
        await check_chain(store.dsn, action)


async def _ended_by_capability(dsn: str) -> dict[tuple[str, str], int]:
    connection = await connect(dsn)
    try:
        rows = await connection.fetch("select capability, state, count(*) from actions group by 1, 2")
        return {(str(row[0]), str(row[1])): int(row[2]) for row in rows}
    finally:
        await connection.close()
