"""SIGTERM with calls in flight: they end, new ones go elsewhere; a second SIGTERM cancels what still runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.caller import Caller, check_chain, effect_of, state_of
from tests.faults.processes import Provider, Server, Servers, until_health
from tests.postgres import Database


@pytest.fixture
def pair(database: Database, servers: Servers) -> tuple[Server, Server]:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral", "drain_seconds": 600}
    # The lease of the one that leaves is given up, not waited for.
    started = [servers.start(wait=False, lease_seconds=60, **store) for _ in range(2)]
    return started[0].until_ready(), started[1].until_ready()


async def test_what_runs_ends_and_what_comes_is_refused_and_runs_elsewhere(
    pair: tuple[Server, Server], provider: Provider, call: Callable[[Server], Caller]
) -> None:
    leaving, staying = pair
    caller, other = call(leaving), call(staying)
    provider.hold("before")
    running = asyncio.ensure_future(caller.execute("till.send", {"order": "A-1"}, "a"))
    await provider.until_held(1, [running])
    leaving.signal(signal.SIGTERM)
    await until_health(leaving, "ready", "NOT_SERVING")
    refused = await caller.execute("till.send", {"order": "A-2"}, "b")
    assert refused.error is not None
    assert ("DRAINING", "UNAVAILABLE", "SAME_KEY") == (
        refused.word,
        refused.error.code,
        refused.error.retry_advice,
    )
    assert None is await caller.by_key("till.send", "b")
    provider.release()
    assert "SUCCEEDED" == (await running).word
    assert 0 == await asyncio.to_thread(leaving.ended)
    assert "SUCCEEDED" == (await other.execute("till.send", {"order": "A-2"}, "b")).word
    attached = await other.execute("till.send", {"order": "A-1"}, "a")
    assert ("SUCCEEDED", True) == (attached.word, attached.attached)
    assert {"refunds": 0, "charges": 0, "messages": 2} == provider.counts()


async def test_a_second_signal_cancels_and_says_what_is_not_known(
    pair: tuple[Server, Server],
    database: Database,
    provider: Provider,
    call: Callable[[Server], Caller],
) -> None:
    leaving, staying = pair
    caller, other = call(leaving), call(staying)
    provider.hold("before")
    names = ("send", "refund", "ponder")
    running = [
        asyncio.ensure_future(caller.execute(f"till.{name}", {"order": f"A-{name}"}, name)) for name in names
    ]
    await provider.until_held(len(names), running)
    leaving.signal(signal.SIGTERM)
    await until_health(leaving, "ready", "NOT_SERVING")
    leaving.signal(signal.SIGTERM)
    answers = dict(zip(names, await asyncio.gather(*running), strict=True))
    assert 0 == await asyncio.to_thread(leaving.ended)
    assert {"send": "EFFECT_AMBIGUOUS", "refund": "DRAINING", "ponder": "DRAINING"} == {
        name: answer.word for name, answer in answers.items()
    }
    left = {name: await other.by_key(f"till.{name}", name) for name in names}
    assert {"send": "AMBIGUOUS UNKNOWN", "refund": "QUEUED UNKNOWN", "ponder": "QUEUED NOT_DONE"} == {
        name: f"{state_of(action)} {effect_of(action)}" for name, action in left.items() if action is not None
    }

    provider.release()
    again = {name: await other.execute(f"till.{name}", {"order": f"A-{name}"}, name) for name in names}
    assert {"send": "EFFECT_AMBIGUOUS", "refund": "SUCCEEDED", "ponder": "SUCCEEDED"} == {
        name: answer.word for name, answer in again.items()
    }
    # The message that was on its way did go out: "not known" was the truth.
    await asyncio.to_thread(provider.wait_counts, {"refunds": 2, "charges": 0, "messages": 2})
    for name in names:
        action = await other.by_key(f"till.{name}", name)
        assert action is not None
        await check_chain(database.dsn, action)
