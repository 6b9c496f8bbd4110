"""A server that owns its Postgres is killed, and both come back: at once, because the folder's lock proves it dead."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from tests.faults.caller import Caller, advice_of, check_chain, effect_of, state_of
from tests.faults.processes import Provider, Server, Servers

# Nobody is rescued by waiting here.
LEASE_SECONDS = 300.0
NAMES = ("look", "refund", "refund_unmarked", "charge", "charge_unmarked", "send", "send_unmarked")
REPEATABLE = ("look", "refund", "refund_unmarked")


def input_of(name: str) -> dict[str, object]:
    return {"wait": True} if name == "look" else {"order": f"A-{name}"}


def dsn_of(folder: Path) -> str:
    password = (folder / "postgres.password").read_text()
    return f"postgresql://placet:{quote(password)}@/postgres?host={quote(str(folder / 'pgdata'), safe='')}"


async def test_every_class_in_flight_is_judged_at_once_by_the_next_owner(
    data_folder: Path, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    first = servers.start(data_dir=data_folder, lease_seconds=LEASE_SECONDS)
    caller = call(first)
    provider.hold("after")
    calls = [asyncio.ensure_future(caller.execute(f"till.{name}", input_of(name), name)) for name in NAMES]
    await provider.until_held(len(NAMES) - 1, calls)
    await caller.until("till.look", "look", "RUNNING")
    first.kill()
    assert {"unavailable"} == {answer.word for answer in await asyncio.gather(*calls)}

    second = call(servers.start(data_dir=data_folder, lease_seconds=LEASE_SECONDS))
    judged = {name: await second.until(f"till.{name}", name, "QUEUED", "AMBIGUOUS") for name in NAMES}
    assert {name: "QUEUED" if name in REPEATABLE else "AMBIGUOUS" for name in NAMES} == {
        name: state_of(action) for name, action in judged.items()
    }
    assert {"look": "-"} | dict.fromkeys(NAMES[1:], "UNKNOWN") == {
        name: effect_of(action) for name, action in judged.items()
    }
    provider.release()
    for name in NAMES:
        answer = await second.execute(f"till.{name}", input_of(name), name)
        assert (name, "SUCCEEDED" if name in REPEATABLE else "EFFECT_AMBIGUOUS") == (name, answer.word)
        action = await second.get(judged[name].action_id)
        await check_chain(dsn_of(data_folder), action)
    assert {"refunds": 2, "charges": 2, "messages": 2} == provider.counts()


async def test_a_life_of_deaths_does_each_thing_once(
    data_folder: Path, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    """The same folder, killed at one boundary after the other; each server first finishes what the last one left."""
    deaths = {
        "before_intent_persistence": ("send", "SUCCEEDED"),
        "intent_persisted": ("charge", "SUCCEEDED"),
        "before_provider_call": ("refund", "SUCCEEDED"),
        "provider_response_received": ("send", "EFFECT_AMBIGUOUS"),
        "result_persisted": ("charge", "SUCCEEDED"),
        "": ("look", "SUCCEEDED"),
    }
    left = ("", "", "")
    for boundary, (name, word) in deaths.items():
        kill_at = f"{boundary}:till.{name}" if boundary else ""
        server = servers.start(data_dir=data_folder, lease_seconds=LEASE_SECONDS, kill_at=kill_at)
        caller = call(server)
        key, capability, expected = left
        if key:
            answer = await caller.execute(capability, {"order": key}, key)
            assert (key, expected) == (key, answer.word)
        if boundary:
            lost = await caller.execute(f"till.{name}", {"order": boundary}, boundary)
            assert ("unavailable", -signal.SIGKILL) == (lost.word, await asyncio.to_thread(server.ended))
            left = boundary, f"till.{name}", word
    assert {"refunds": 1, "charges": 2, "messages": 2} == provider.counts()


async def test_the_reply_lost_after_the_commit_is_answered_by_the_next_server(
    data_folder: Path, servers: Servers, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    first = servers.start(data_dir=data_folder, kill_at="result_persisted:till.send")
    lost = await call(first).execute("till.send", {"order": "A-1"}, "k")
    assert ("unavailable", -signal.SIGKILL) == (lost.word, first.ended())
    second = call(servers.start(data_dir=data_folder))
    stored = await second.by_key("till.send", "k")
    assert stored is not None
    assert ("SUCCEEDED", "DONE", "NEVER") == (state_of(stored), effect_of(stored), advice_of(stored))
    answer = await second.execute("till.send", {"order": "A-1"}, "k")
    assert (True, stored.action_id, stored.output_json) == (
        answer.attached,
        answer.action and answer.action.action_id,
        answer.output,
    )
    assert {"refunds": 0, "charges": 0, "messages": 1} == provider.counts()
