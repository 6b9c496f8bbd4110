"""SIGKILL at each crash boundary of submitted work, for each effect class, marked and unmarked: nobody asks again, and
what was stored is run, once where that matters; and what may have happened is said to be AMBIGUOUS.

A witness, which nobody kills and which runs nothing, stores the work and rescues it; a last server, started for that,
finishes it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from placet.v1 import action_pb2
from placet_server.store.connection import connect
from tests.faults.caller import Answer, Caller, advice_of, check_chain, effect_of, state_of, until_all_ended
from tests.faults.processes import Provider, Server, Servers
from tests.postgres import Database

EFFECTS_OF = {
    "refund": "refunds",
    "refund_unmarked": "refunds",
    "charge": "charges",
    "charge_unmarked": "charges",
    "send": "messages",
    "send_unmarked": "messages",
}
HELD = "provider_effect_committed"
# Here the server dies to which the work is submitted.
AT_SUBMIT = ("before_intent_persistence", "intent_persisted")
# Nobody is rescued before the test says so.
LONG_LEASE: dict[str, Any] = {"lease_seconds": 120}


@dataclass(frozen=True)
class Fate:
    """What a case may come to: as the dead server left it, after the rescue, how it ends without being asked for again,
    in which attempt, and what happened at the provider."""

    left: str
    rescued: str
    ended: str
    attempts: int
    effects: int


NEVER_STORED = Fate("none", "none", "none", 0, 0)
STORED = Fate("QUEUED NOT_DONE", "QUEUED NOT_DONE", "SUCCEEDED", 1, 1)
STORED_READ = Fate("QUEUED -", "QUEUED -", "SUCCEEDED", 1, 0)
# Certainly not begun: run again, whatever its class.
NOT_BEGUN = Fate("RUNNING NOT_DONE", "QUEUED NOT_DONE", "SUCCEEDED", 2, 1)
REPEATED = Fate("RUNNING UNKNOWN", "QUEUED UNKNOWN", "SUCCEEDED", 2, 1)
READ_AGAIN = Fate("RUNNING -", "QUEUED -", "SUCCEEDED", 2, 0)
DONE = Fate("SUCCEEDED DONE NEVER", "SUCCEEDED DONE NEVER", "SUCCEEDED", 1, 1)
READ_ONCE = Fate("SUCCEEDED - NEVER", "SUCCEEDED - NEVER", "SUCCEEDED", 1, 0)


def ambiguous(effects: int) -> Fate:
    return Fate("RUNNING UNKNOWN", "AMBIGUOUS UNKNOWN AFTER_WAIT", "AMBIGUOUS", 1, effects)


def fates(marked: tuple[Fate, Fate], unmarked: tuple[Fate, Fate], read: Fate | None) -> dict[str, Fate]:
    """Each pair: of the repeatable class, and of the two others."""
    table = {} if read is None else {"look": read}
    for mark, (repeatable, other) in (("", marked), ("_unmarked", unmarked)):
        table |= {f"refund{mark}": repeatable, f"charge{mark}": other, f"send{mark}": other}
    return table


BEGUN_IN_VAIN, BEGUN = (REPEATED, ambiguous(0)), (REPEATED, ambiguous(1))

FATES = {
    "before_intent_persistence": {
        "look": NEVER_STORED,
        "refund": NEVER_STORED,
        "send_unmarked": NEVER_STORED,
    },
    "intent_persisted": {"look": STORED_READ, "refund": STORED, "send_unmarked": STORED},
    # Unmarked, a handler may have begun as soon as it is entered, which nobody sees from outside.
    "claimed": fates((NOT_BEGUN,) * 2, BEGUN_IN_VAIN, READ_AGAIN),
    # A read does not reach it: it has nothing to begin.
    "before_provider_call": fates(BEGUN_IN_VAIN, BEGUN_IN_VAIN, None),
    HELD: fates(BEGUN, BEGUN, READ_AGAIN),
    "provider_response_received": fates(BEGUN, BEGUN, READ_AGAIN),
    "result_persisted": {"look": READ_ONCE, "refund": DONE, "send_unmarked": DONE},
}


def input_of(name: str, boundary: str = "") -> dict[str, object]:
    return {"wait": boundary == HELD} if name == "look" else {"order": f"A-{name}"}


@pytest.mark.both_servers
@pytest.mark.parametrize("boundary", ["claimed", HELD])
async def test_whatever_it_had_taken_dies_with_it_and_each_class_keeps_its_promise(
    boundary: str, database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """All in one claim, whose answer is the last that this server hears; or all at the provider."""
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    witness = call(servers.start(queue_slots=0, **store))
    if boundary == HELD:
        provider.hold("after")
    ids = {name: _id(await _submit(witness, name, boundary)) for name in FATES[boundary]}
    victim = servers.start(kill_at="" if boundary == HELD else boundary, wait=False, **store, **LONG_LEASE)
    if boundary == HELD:
        await provider.until_held(len(EFFECTS_OF), [])
        await witness.until("till.look", "look", "RUNNING")
        victim.kill()
    assert -signal.SIGKILL == await asyncio.to_thread(victim.ended)
    await _come_to_their_fates(
        boundary, ids, witness, database.dsn, lambda: call(servers.start(**store)), provider
    )


@pytest.mark.parametrize("boundary", sorted(FATES.keys() - {"claimed", HELD}))
async def test_every_class_keeps_its_promise_though_nobody_asks_again(
    boundary: str, database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "store_connections_max": 3}
    witness = call(servers.start(queue_slots=0, **store))
    at_submit = boundary in AT_SUBMIT
    ids = {}
    for name in FATES[boundary]:
        kill_at, slots = f"{boundary}:till.{name}", 0 if at_submit else 8
        victim = servers.start(kill_at=kill_at, queue_slots=slots, **store, **LONG_LEASE)
        answer = await _submit(call(victim) if at_submit else witness, name, boundary)
        assert (name, "unavailable" if at_submit else "SUCCEEDED") == (name, answer.word)
        ids[name] = "" if at_submit else _id(answer)
        assert (name, -signal.SIGKILL) == (name, await asyncio.to_thread(victim.ended))
    await _come_to_their_fates(
        boundary, ids, witness, database.dsn, lambda: call(servers.start(**store)), provider
    )


async def _come_to_their_fates(
    boundary: str,
    ids: dict[str, str],
    witness: Caller,
    dsn: str,
    finisher: Callable[[], Caller],
    provider: Provider,
) -> None:
    expected = FATES[boundary]
    left = {name: await witness.by_key(f"till.{name}", name) for name in expected}
    assert {name: fate.left for name, fate in expected.items()} == {
        name: _told(left[name], fate.left) for name, fate in expected.items()
    }
    await _let_leases_run_out(dsn)
    rescued = {name: await _rescued(witness, name, fate) for name, fate in expected.items()}
    assert {name: fate.rescued for name, fate in expected.items()} == {
        name: _told(action, expected[name].rescued) for name, action in rescued.items()
    }
    provider.release()
    last = finisher()
    for name, fate in expected.items():
        if fate.ended != "none":
            await last.until(f"till.{name}", name, fate.ended)
    assert _effects(expected) == provider.counts()
    # Whoever has the key gets the same action, and changes nothing.
    for name, fate in expected.items():
        again = await _submit(last, name, boundary)
        assert (name, fate.ended != "none") == (name, again.attached)
        if fate.ended != "none":
            assert ids[name] in ("", _id(again))
            action = await last.get(_id(again))
            assert (name, fate.ended, fate.attempts) == (name, state_of(action), action.attempt)
            types = await check_chain(dsn, action)
            assert fate.attempts == types.count("attempt_started")
            assert ("settled" in types) == (fate.ended == "SUCCEEDED")
            assert _effects(expected) == provider.counts()


async def _submit(caller: Caller, name: str, boundary: str) -> Answer:
    return await caller.submit(f"till.{name}", input_of(name, boundary), name)


def _id(answer: Answer) -> str:
    assert answer.action is not None, repr(answer.error)
    return answer.action.action_id


async def _let_leases_run_out(dsn: str) -> None:
    connection = await connect(dsn)
    try:
        await connection.execute(
            "update instances set started_time = now() - interval '1 h', heartbeat_time = now() - interval '1 h'"
            " where lease_seconds = $1",
            float(LONG_LEASE["lease_seconds"]),
        )
    finally:
        await connection.close()


async def _rescued(witness: Caller, name: str, fate: Fate) -> action_pb2.Action | None:
    if fate.rescued == "none":
        return await witness.by_key(f"till.{name}", name)
    return await witness.until(f"till.{name}", name, fate.rescued.split()[0])


def _told(action: action_pb2.Action | None, form: str) -> str:
    """State, effect and retry advice, as many of them as the form has."""
    if action is None:
        return "none"
    return " ".join((state_of(action), effect_of(action), advice_of(action))[: len(form.split())])


def _effects(expected: dict[str, Fate]) -> dict[str, int]:
    counts = {"refunds": 0, "charges": 0, "messages": 0}
    for name, kind in EFFECTS_OF.items():
        counts[kind] += expected[name].effects if name in expected else 0
    return counts


# What is submitted there, and how that ends.
DEATHS = {
    "before_intent_persistence": ("send", ""),
    "intent_persisted": ("charge", "SUCCEEDED"),
    "claimed": ("send", "SUCCEEDED"),
    "before_provider_call": ("refund", "SUCCEEDED"),
    "provider_response_received": ("send", "AMBIGUOUS"),
    "result_persisted": ("charge", "SUCCEEDED"),
}


async def test_a_life_of_deaths_finishes_what_was_submitted(
    data_folder: Path, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """The same folder, one server at a time, killed at one boundary after the other. Each finishes what the last one
    left, at once, for the folder's lock proves it dead; and what was delayed comes once, and not too soon."""
    first = servers.start(data_dir=data_folder, queue_slots=0, **LONG_LEASE)
    late_one = call(first).submit("till.send_unmarked", {"order": "l"}, "l", queue="late", delay=3)
    assert "SUCCEEDED" == (await late_one).word
    # However long the deaths take, it is at none of them.
    await _execute(data_folder, "insert into queue_pauses values ('late', '-', now(), 'a test', '')")
    first.kill()
    left = ("till.send", "none", "")
    for boundary, (name, word) in DEATHS.items():
        server = servers.start(data_dir=data_folder, kill_at=f"{boundary}:till.{name}", **LONG_LEASE)
        caller = call(server)
        await _finish(caller, *left)
        answer = await caller.submit(f"till.{name}", {"order": boundary}, boundary)
        assert (boundary, "unavailable" if boundary in AT_SUBMIT else "SUCCEEDED") == (boundary, answer.word)
        assert (boundary, -signal.SIGKILL) == (boundary, await asyncio.to_thread(server.ended))
        left = f"till.{name}", boundary, word
    caller = call(servers.start(data_dir=data_folder, **LONG_LEASE))
    await _finish(caller, *left)
    await _execute(data_folder, "delete from queue_pauses")
    late = await caller.until("till.send_unmarked", "l", "SUCCEEDED")
    assert (1, True) == (late.attempt, late.start_time.ToNanoseconds() >= late.ready_time.ToNanoseconds())
    assert 3 <= (late.ready_time.ToNanoseconds() - late.create_time.ToNanoseconds()) / 1e9 < 3.1
    # The claimed one, the one that is ambiguous, and the late one.
    assert {"refunds": 1, "charges": 2, "messages": 3} == provider.counts()
    await check_chain(dsn_of(data_folder), late)


@pytest.mark.parametrize("postgres_kind", ["installed"], indirect=True)
async def test_a_life_of_deaths_on_a_plain_postgres_finishes_what_was_submitted(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """As above, but whoever died is known to be dead by its lease alone."""
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    witness = call(servers.start(queue_slots=0, **store))
    left = ("till.send", "none", "")
    for boundary, (name, word) in DEATHS.items():
        server = servers.start(kill_at=f"{boundary}:till.{name}", **store, **LONG_LEASE)
        await _finish(witness, *left)
        caller = call(server) if boundary in AT_SUBMIT else witness
        answer = await caller.submit(f"till.{name}", {"order": boundary}, boundary)
        assert (boundary, "unavailable" if boundary in AT_SUBMIT else "SUCCEEDED") == (boundary, answer.word)
        assert (boundary, -signal.SIGKILL) == (boundary, await asyncio.to_thread(server.ended))
        await _let_leases_run_out(database.dsn)
        left = f"till.{name}", boundary, word
    servers.start(**store, **LONG_LEASE)
    await _finish(witness, *left)
    # The one that is ambiguous, and the others that have been stored.
    assert {"refunds": 1, "charges": 2, "messages": 2} == provider.counts()
    assert [("AMBIGUOUS", 1)] == [
        row[:2] for row in await until_all_ended(database.dsn) if row[0] != "SUCCEEDED"
    ]


async def _execute(folder: Path, statement: str) -> None:
    connection = await connect(dsn_of(folder))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _finish(caller: Caller, capability: str, key: str, ended: str) -> None:
    if ended:
        await caller.until(capability, key, ended)
    else:
        assert None is await caller.by_key(capability, key)


def dsn_of(folder: Path) -> str:
    password = (folder / "postgres.password").read_text()
    return f"postgresql://placet:{quote(password)}@/postgres?host={quote(str(folder / 'pgdata'), safe='')}"


async def test_it_can_be_read_as_soon_as_it_is_said_to_be_stored(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """And what one has stored and delayed, the other one runs in time."""
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    mortal, other = servers.start(**store), servers.start(**store)
    caller, survivor = call(mortal), call(other)
    answers = [
        await caller.submit("till.send", {"order": f"{n}"}, f"k{n}", delay=0.0 if n % 2 else 1.0)
        for n in range(20)
    ]
    mortal.kill()
    ids = [_id(answer) for answer in answers]
    assert ids == [(await survivor.get(action_id)).action_id for action_id in ids]
    ended = [await survivor.until("till.send", f"k{n}", "SUCCEEDED", "AMBIGUOUS") for n in range(20)]
    unknown = [state_of(action) for action in ended].count("AMBIGUOUS")
    assert {"SUCCEEDED"} == {state_of(action) for action in ended[::2]}
    assert all(a.start_time.ToNanoseconds() >= a.ready_time.ToNanoseconds() for a in ended[::2])
    assert 20 - unknown <= provider.counts()["messages"] <= 20


async def test_servers_that_start_at_once_share_what_has_gathered(
    database: Database, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    storing = call(servers.start(queue_slots=0, **store))
    orders = [f"{n}" for n in range(200)]
    stored = await asyncio.gather(
        *(storing.submit(f"till.{('send', 'send_unmarked')[int(n) % 2]}", {"order": n}, n) for n in orders)
    )
    assert {"SUCCEEDED"} == {answer.word for answer in stored}
    # No more at once than the provider has room for.
    pair = [servers.start(wait=False, queue_slots=4, **store) for _ in range(2)]
    for server in pair:
        await asyncio.to_thread(server.until_ready)
    assert [("SUCCEEDED", 1, 200)] == await until_all_ended(database.dsn)
    assert 200 == provider.counts()["messages"]
    assert [None, None] == [server.code for server in pair]
