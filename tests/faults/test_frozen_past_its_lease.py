"""A process that stands still: with its heart beating it loses nothing, without it is declared dead and stays so."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from tests.faults.caller import Caller, check_chain, effect_of, state_of
from tests.faults.processes import LEASE_SECONDS, Provider, Server, Servers, health_of, until_health
from tests.postgres import Database

EXIT_LOST = 70


async def test_a_handler_that_blocks_the_event_loop_loses_no_lease(
    database: Database, servers: Servers, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    blocked, witness = servers.start(**store), servers.start(**store)
    blocking = asyncio.ensure_future(call(blocked).execute("till.block", {"seconds": 2 * LEASE_SECONDS}, "k"))
    await until_health(blocked, "live", "NOT_SERVING")
    assert "SERVING" == health_of(witness, "live")
    answer = await blocking
    assert ("SUCCEEDED", "6") == (answer.word, answer.output)
    assert answer.action is not None
    assert (1, ["admitted", "settled"]) == (
        answer.action.attempt,
        await check_chain(database.dsn, answer.action),
    )
    await until_health(blocked, "live", "SERVING")
    assert [None, None] == [blocked.code, witness.code]


async def test_a_frozen_server_is_taken_over_by_class_and_ends_when_it_wakes(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    frozen, witness = servers.start(**store), servers.start(**store)
    caller, other = call(frozen), call(witness)
    names = ("look", "refund", "charge", "send", "ponder")
    inputs: dict[str, Any] = {name: {"order": f"A-{name}"} for name in names} | {"look": {"wait": True}}
    provider.hold("before")
    lost = {
        name: asyncio.ensure_future(caller.execute(f"till.{name}", inputs[name], name, seconds=60))
        for name in names
    }
    await provider.until_held(4, lost.values())
    await caller.until("till.look", "look", "RUNNING")
    frozen.signal(signal.SIGSTOP)

    judged = {
        name: await other.until(f"till.{name}", name, "QUEUED", "AMBIGUOUS", "SUCCEEDED") for name in names
    }
    assert {
        "look": "QUEUED -",
        "refund": "QUEUED UNKNOWN",
        "charge": "AMBIGUOUS UNKNOWN",
        "send": "AMBIGUOUS UNKNOWN",
        "ponder": "QUEUED NOT_DONE",
    } == {name: f"{state_of(action)} {effect_of(action)}" for name, action in judged.items()}
    provider.release()
    taken = {name: await other.execute(f"till.{name}", inputs[name], name) for name in names}
    assert ["SUCCEEDED", "SUCCEEDED", "EFFECT_AMBIGUOUS", "EFFECT_AMBIGUOUS", "SUCCEEDED"] == [
        taken[name].word for name in names
    ]

    frozen.signal(signal.SIGCONT)
    assert EXIT_LOST == await asyncio.to_thread(frozen.ended, LEASE_SECONDS + 30)
    await asyncio.gather(*lost.values())
    after = {name: await other.get(judged[name].action_id) for name in names}
    # What was taken over keeps the result of who took it over. What nobody acquired may get the late true answer.
    for name in ("look", "refund", "ponder"):
        assert (2, taken[name].output) == (after[name].attempt, after[name].output_json)
    for name in ("charge", "send"):
        assert (name, 1, True) == (
            name,
            after[name].attempt,
            state_of(after[name]) in ("AMBIGUOUS", "SUCCEEDED"),
        )
    # ponder's first request is deduplicated by the provider, and its effect was begun by one attempt alone.
    assert {"refunds": 2, "charges": 1, "messages": 2} == provider.counts()
    for action in after.values():
        await check_chain(database.dsn, action)
