"""SIGKILL at each crash boundary, for each effect class, marked and unmarked: one effect, or AMBIGUOUS and said so.

One server of its own dies for each capability, at the same boundary of the same database. A witness, which nobody
kills, is asked at once, rescues, and is sent the same requests again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from placet.v1 import action_pb2
from tests.faults.caller import Answer, Caller, advice_of, check_chain, effect_of, state_of
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

# What a case may come to: as stored while the dead server still has the lease, after the rescue, what the same
# request with the same key gets, attempts, and what happened at the provider.


@dataclass(frozen=True)
class Fate:
    left: str
    rescued: str
    resent: str
    attempts: int
    effects: int


NEVER_STORED = Fate("none", "none", "SUCCEEDED", 1, 1)
# Certainly not begun: whoever resends it runs it, whatever its class.
NOT_BEGUN = Fate("RUNNING NOT_DONE", "QUEUED NOT_DONE SAME_KEY", "SUCCEEDED", 2, 1)
REPEATED = Fate("RUNNING UNKNOWN", "QUEUED UNKNOWN SAME_KEY", "SUCCEEDED", 2, 1)
READ_AGAIN = Fate("RUNNING -", "QUEUED - SAME_KEY", "SUCCEEDED", 2, 0)
STORED = Fate("SUCCEEDED DONE NEVER", "SUCCEEDED DONE NEVER", "SUCCEEDED", 1, 1)
READ_ONCE = Fate("SUCCEEDED - NEVER", "SUCCEEDED - NEVER", "SUCCEEDED", 1, 0)


def ambiguous(effects: int) -> Fate:
    return Fate("RUNNING UNKNOWN", "AMBIGUOUS UNKNOWN AFTER_WAIT", "EFFECT_AMBIGUOUS", 1, effects)


def fates(marked: tuple[Fate, Fate], unmarked: tuple[Fate, Fate], read: Fate | None) -> dict[str, Fate]:
    """Each pair: of the repeatable class, and of the two others."""
    table = {} if read is None else {"look": read}
    for mark, (repeatable, other) in (("", marked), ("_unmarked", unmarked)):
        table |= {f"refund{mark}": repeatable, f"charge{mark}": other, f"send{mark}": other}
    return table


BEGUN_IN_VAIN, BEGUN = (REPEATED, ambiguous(0)), (REPEATED, ambiguous(1))
NONE_STORED = Fate("none", "none", "SUCCEEDED", 1, 0)

FATES = {
    "before_intent_persistence": fates((NEVER_STORED,) * 2, (NEVER_STORED,) * 2, NONE_STORED),
    # Unmarked, a handler may have begun as soon as it is entered, which nobody sees from outside.
    "intent_persisted": fates((NOT_BEGUN,) * 2, BEGUN_IN_VAIN, READ_AGAIN),
    # A read does not reach it: it has nothing to begin.
    "before_provider_call": fates(BEGUN_IN_VAIN, BEGUN_IN_VAIN, None),
    HELD: fates(BEGUN, BEGUN, READ_AGAIN),
    "provider_response_received": fates(BEGUN, BEGUN, READ_AGAIN),
    "result_persisted": fates((STORED,) * 2, (STORED,) * 2, READ_ONCE),
}


def input_of(name: str, boundary: str) -> dict[str, object]:
    return {"wait": boundary == HELD} if name == "look" else {"order": f"A-{name}"}


@pytest.mark.both_servers
@pytest.mark.parametrize("boundary", FATES)
async def test_every_class_keeps_its_promise(
    boundary: str,
    database: Database,
    servers: Servers,
    provider: Provider,
    call: Callable[[Server], Caller],
) -> None:
    expected = FATES[boundary]
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "store_connections_max": 3}
    witness = call(servers.start(**store))
    victims = [_victim(servers, name, boundary, store) for name in expected]
    lost = await _kill(boundary, list(expected), victims, provider, call)
    assert dict.fromkeys(expected, "unavailable") == {name: answer.word for name, answer in lost.items()}

    left = {name: await witness.by_key(f"till.{name}", name) for name in expected}
    assert {name: fate.left for name, fate in expected.items()} == {
        name: _told(action, fate.left)
        for (name, action), fate in zip(left.items(), expected.values(), strict=True)
    }
    rescued = {name: await _rescued(witness, name, fate) for name, fate in expected.items()}
    assert {name: fate.rescued for name, fate in expected.items()} == {
        name: _told(action, expected[name].rescued) for name, action in rescued.items()
    }

    provider.release()
    resent = await _resend(witness, boundary, list(expected))
    again = await _resend(witness, boundary, list(expected))
    assert {name: fate.resent for name, fate in expected.items()} == {
        name: answer.word for name, answer in resent.items()
    }
    assert [_essence(answer) for answer in resent.values()] == [_essence(answer) for answer in again.values()]
    assert _effects(expected) == provider.counts()
    for name, fate in expected.items():
        action = await witness.by_key(f"till.{name}", name)
        assert action is not None
        assert (name, fate.attempts) == (name, action.attempt)
        assert (left[name] or action).action_id == action.action_id
        types = await check_chain(database.dsn, action)
        assert ("settled" in types) == (state_of(action) == "SUCCEEDED")


def _victim(servers: Servers, name: str, boundary: str, store: dict[str, Any]) -> Server:
    kill_at = "" if boundary == HELD else f"{boundary}:till.{name}"
    return servers.start(kill_at=kill_at, **store)


async def _kill(
    boundary: str,
    names: list[str],
    victims: list[Server],
    provider: Provider,
    call: Callable[[Server], Caller],
) -> dict[str, Answer]:
    """What the callers get when their servers die: at the boundary, or while the provider holds its reply."""
    if boundary == HELD:
        provider.hold("after")
    callers = [call(victim) for victim in victims]
    calls = [
        asyncio.ensure_future(caller.execute(f"till.{name}", input_of(name, boundary), name))
        for name, caller in zip(names, callers, strict=True)
    ]
    if boundary == HELD:
        await provider.until_held(len(EFFECTS_OF), calls)
        await callers[names.index("look")].until("till.look", "look", "RUNNING")
        for victim in victims:
            victim.signal(signal.SIGKILL)
    for name, victim, one in zip(names, victims, calls, strict=True):
        code = await asyncio.to_thread(victim.ended)
        assert (name, -signal.SIGKILL) == (name, code), one
    return dict(zip(names, await asyncio.gather(*calls), strict=True))


async def _rescued(witness: Caller, name: str, fate: Fate) -> action_pb2.Action | None:
    if fate.rescued == "none":
        return await witness.by_key(f"till.{name}", name)
    return await witness.until(f"till.{name}", name, fate.rescued.split()[0])


async def _resend(witness: Caller, boundary: str, names: list[str]) -> dict[str, Answer]:
    answers = await asyncio.gather(
        *(witness.execute(f"till.{name}", input_of(name, boundary), name) for name in names)
    )
    return dict(zip(names, answers, strict=True))


def _told(action: action_pb2.Action | None, form: str) -> str:
    """State, effect and retry advice, as many of them as the form has."""
    if action is None:
        return "none"
    return " ".join((state_of(action), effect_of(action), advice_of(action))[: len(form.split())])


def _essence(answer: Answer) -> tuple[str, str, str]:
    if answer.error is not None:
        return answer.word, answer.error.action_id, answer.error.effect
    assert answer.action is not None
    return answer.word, answer.action.action_id, answer.action.output_json


def _effects(expected: dict[str, Fate]) -> dict[str, int]:
    counts = {"refunds": 0, "charges": 0, "messages": 0}
    for name, kind in EFFECTS_OF.items():
        counts[kind] += expected[name].effects
    return counts
