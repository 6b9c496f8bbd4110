"""Everybody wants the same submitted action at once, at two servers: claims, resends with its key, rescues, cancels,
redrives. Each comes to one end, and what happened at the provider is what that end says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from placet.v1 import action_pb2
from placet_server.store.connection import connect
from tests.faults.caller import Answer, Caller, check_chain, state_of, until_all_ended
from tests.faults.processes import POLL_SECONDS, Provider, Server, Servers
from tests.postgres import Database

ROUNDS = 120


@pytest.fixture
def start(database: Database, servers: Servers) -> Callable[..., Server]:
    def one(**fields: Any) -> Server:
        return servers.start(dsn=database.dsn, dsn_durability="ephemeral", **fields)

    return one


def id_of(answer: Answer) -> str:
    assert answer.action is not None, repr(answer.error)
    return answer.action.action_id


async def told(dsn: str) -> dict[tuple[str, str], int]:
    """How many actions of each capability came to which state, without the app's name."""
    connection = await connect(dsn)
    try:
        rows = await connection.fetch(
            "select substr(capability, 6), state, count(*) from actions group by 1, 2 order by 1, 2"
        )
        return {(str(row[0]), str(row[1])): int(row[2]) for row in rows}
    finally:
        await connection.close()


@pytest.mark.both_servers
async def test_resends_race_claims_and_rescues(
    start: Callable[..., Server], database: Database, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    mortal, other = start(queue_slots=4), start(queue_slots=4)
    pair = [call(mortal), call(other)]
    names = ("send", "send_unmarked", "refund", "charge")
    keys = [(names[n % 4], f"k{n}") for n in range(60)]
    dice = random.Random(5)

    async def send(name: str, key: str, caller: Caller, verb: str) -> Answer:
        await asyncio.sleep(dice.random())
        if verb == "submit":
            return await caller.submit(f"till.{name}", {"order": key}, key)
        return await caller.execute(f"till.{name}", {"order": key}, key)

    sent = [
        asyncio.ensure_future(send(name, key, caller, verb))
        for name, key in keys
        for caller in pair
        for verb in ("submit", "execute")
    ]
    await asyncio.sleep(0.6)
    mortal.kill()
    answers = await asyncio.gather(*sent)
    assert {"unavailable", "SUCCEEDED", "EFFECT_AMBIGUOUS", "STORE_UNAVAILABLE"} >= {a.word for a in answers}
    again = await asyncio.gather(*(pair[1].execute(f"till.{n}", {"order": k}, k) for n, k in keys))
    await until_all_ended(database.dsn)
    ends = await told(database.dsn)
    assert len(keys) == sum(ends.values())
    assert 15 == ends["refund", "SUCCEEDED"]
    assert {"SUCCEEDED", "EFFECT_AMBIGUOUS"} >= {answer.word for answer in again}
    for kinds, counted in ((("refund",), "refunds"), (("charge",), "charges"), (names[:2], "messages")):
        sure = sum(n for (name, state), n in ends.items() if name in kinds and state == "SUCCEEDED")
        unknown = sum(n for (name, state), n in ends.items() if name in kinds and state == "AMBIGUOUS")
        assert (counted, True) == (counted, sure <= provider.counts()[counted] <= sure + unknown)
    for name, key in keys[:: len(keys) // 12]:
        action = await pair[1].by_key(f"till.{name}", key)
        assert action is not None
        await check_chain(database.dsn, action)


async def test_a_cancel_races_completion_at_another_server(
    start: Callable[..., Server], database: Database, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    start(queue_slots=4)
    asking = call(start(queue_slots=0))
    dice = random.Random(6)

    async def one(number: int) -> action_pb2.Action:
        name = ("send", "send_unmarked", "look")[number % 3]
        given = {} if name == "look" else {"order": str(number)}
        action_id = id_of(await asking.submit(f"till.{name}", given, f"k{number}"))
        await asyncio.sleep(dice.random() * 0.04)
        return await asking.cancel(action_id)

    async def lane(number: int) -> list[action_pb2.Action]:
        return [await one(number * ROUNDS // 4 + turn) for turn in range(ROUNDS // 4)]

    asked = [action for lane in await asyncio.gather(*(lane(n) for n in range(4))) for action in lane]
    await until_all_ended(database.dsn)
    ends = [await asking.get(action.action_id) for action in asked]
    states = [state_of(action) for action in ends]
    assert {"CANCELLED", "SUCCEEDED", "AMBIGUOUS"} >= set(states)
    assert min(states.count("CANCELLED"), states.count("SUCCEEDED")) > 0
    for was, action in zip(asked, ends, strict=True):
        # What was told as ended stays so, and ends once.
        if state_of(was) in ("CANCELLED", "SUCCEEDED"):
            assert was.receipt_digest == action.receipt_digest
        types = await check_chain(database.dsn, action)
        assert (state_of(action) != "AMBIGUOUS") == types.count("settled")
    kinds = await told(database.dsn)
    sure = kinds["send", "SUCCEEDED"] + kinds["send_unmarked", "SUCCEEDED"]
    unknown = kinds.get(("send", "AMBIGUOUS"), 0) + kinds.get(("send_unmarked", "AMBIGUOUS"), 0)
    assert sure <= provider.counts()["messages"] <= sure + unknown


async def test_redrives_at_two_servers_race_cancels(
    start: Callable[..., Server], database: Database, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    pair = [call(start(queue_slots=2)), call(start(queue_slots=2))]
    dice = random.Random(7)

    async def one(number: int) -> tuple[str, list[str]]:
        key, order = f"k{number}", {"order": str(number)}
        action_id = id_of(await pair[0].submit("till.send", order, key, delay=60))
        assert "CANCELLED" == state_of(await pair[1].cancel(action_id))

        async def redrive(caller: Caller) -> str:
            await asyncio.sleep(dice.random() * 0.02)
            return await caller.redrive(action_id)

        async def cancel(caller: Caller) -> str:
            await asyncio.sleep(dice.random() * 0.04)
            await caller.cancel(action_id)
            return "cancel"

        return action_id, list(await asyncio.gather(*(redrive(c) for c in pair), *(cancel(c) for c in pair)))

    async def lane(number: int) -> list[tuple[str, list[str]]]:
        return [await one(number * 10 + turn) for turn in range(10)]

    done = [each for lane in await asyncio.gather(*(lane(n) for n in range(6))) for each in lane]
    await until_all_ended(database.dsn)
    kinds = await told(database.dsn)
    assert {"CANCELLED", "SUCCEEDED", "AMBIGUOUS"} >= {state for _, state in kinds}
    sure, unknown = kinds.get(("send", "SUCCEEDED"), 0), kinds.get(("send", "AMBIGUOUS"), 0)
    assert sure <= provider.counts()["messages"] <= sure + unknown
    for action_id, words in done:
        action = await pair[0].get(action_id)
        assert set(words) <= {"", "cancel", "not_terminal", "moved", "effect_done", "effect_ambiguous"}
        assert 1 + words.count("") == action.generation
        types = await check_chain(database.dsn, action)
        assert words.count("") == types.count("redriven")


async def test_a_cancelled_handler_that_blocks_keeps_its_slot(
    start: Callable[..., Server], database: Database, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    caller = call(start(queue_slots=1))
    provider.hold("before")
    blocked = id_of(await caller.submit("till.send_unmarked", {"order": "1"}, "k"))
    await provider.until_held(1, [])
    await caller.cancel(blocked)
    waiting = id_of(await caller.submit("till.clock", {}, "c"))
    await asyncio.sleep(1)
    running = await caller.get(blocked)
    assert ("RUNNING", True) == (state_of(running), running.HasField("cancel_requested_time"))
    assert "QUEUED" == state_of(await caller.get(waiting))
    provider.release()
    await until_all_ended(database.dsn)
    assert "SUCCEEDED" == state_of(await caller.get(waiting))
    # It was too late for the cancel, and what happened is told.
    assert "SUCCEEDED" == state_of(await caller.get(blocked))
    assert {"refunds": 0, "charges": 0, "messages": 1} == provider.counts()


async def test_a_server_that_dies_between_a_cancel_and_its_end_leaves_it_cancelled(
    start: Callable[..., Server], database: Database, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """Not begun, whoever finds it; and a handler that had begun is not begun again."""
    mortal, other = start(), call(start(queue_slots=0))
    provider.hold("before")
    ids = {}
    for name in ("ponder", "refund", "send"):
        ids[name] = id_of(await other.submit(f"till.{name}", {"order": name}, name))
    await provider.until_held(3, [])
    mortal.kill()
    for action_id in ids.values():
        assert "RUNNING" == state_of(await other.cancel(action_id))
    provider.release()
    start()
    expected = {"ponder": "CANCELLED", "refund": "AMBIGUOUS", "send": "AMBIGUOUS"}
    for name, state in expected.items():
        action = await other.until(f"till.{name}", name, state)
        assert (name, 1) == (name, action.attempt)
        await check_chain(database.dsn, action)
    await asyncio.sleep(POLL_SECONDS)
    assert {"refunds": 2, "charges": 0, "messages": 1} == provider.counts()
