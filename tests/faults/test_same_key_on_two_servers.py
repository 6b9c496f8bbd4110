"""One key sent again, everywhere and at any time: one action, one effect, one output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.caller import Caller, check_chain, effect_of, state_of
from tests.faults.processes import Provider, Server, Servers
from tests.postgres import Database


@pytest.fixture
def pair(database: Database, servers: Servers) -> tuple[Server, Server]:
    store: dict[str, Any] = {"dsn": database.dsn, "dsn_durability": "ephemeral"}
    started = [servers.start(wait=False, **store) for _ in range(2)]
    return started[0].until_ready(), started[1].until_ready()


@pytest.mark.both_servers
async def test_three_starts_of_one_key_at_once_are_one_execution(
    pair: tuple[Server, Server], provider: Provider, call: Callable[[Server], Caller]
) -> None:
    callers = [call(pair[0]), call(pair[1]), call(pair[0])]
    for round_ in range(5):
        answers = await asyncio.gather(
            *(caller.execute("till.send", {"order": "A-1"}, f"k{round_}") for caller in callers)
        )
        assert ["SUCCEEDED"] * 3 == [answer.word for answer in answers]
        assert [False, True, True] == sorted(answer.attached for answer in answers)
        assert 1 == len({answer.output for answer in answers})
        assert round_ + 1 == provider.counts()["messages"]


async def test_a_resubmission_attaches_while_it_runs_and_gets_what_is_stored_after(
    pair: tuple[Server, Server], provider: Provider, call: Callable[[Server], Caller]
) -> None:
    first, second = call(pair[0]), call(pair[1])
    provider.hold("after")
    running = asyncio.ensure_future(first.execute("till.send", {"order": "A-1"}, "k"))
    await provider.until_held(1, [running])
    attaching = asyncio.ensure_future(second.execute("till.send", {"order": "A-1"}, "k"))
    conflict = await second.execute("till.send", {"order": "A-2"}, "k")
    provider.release()
    answers = [await running, await attaching, await second.execute("till.send", {"order": "A-1"}, "k")]
    assert [("SUCCEEDED", False), ("SUCCEEDED", True), ("SUCCEEDED", True)] == [
        (answer.word, answer.attached) for answer in answers
    ]
    assert 1 == len({(answer.action and answer.action.action_id, answer.output) for answer in answers})
    assert conflict.error is not None
    assert ("IDEMPOTENCY_CONFLICT", "ALREADY_EXISTS") == (conflict.word, conflict.error.code)
    assert {"refunds": 0, "charges": 0, "messages": 1} == provider.counts()


async def test_a_client_that_died_before_it_knew_its_action_finds_it_by_its_key(
    pair: tuple[Server, Server], provider: Provider, call: Callable[[Server], Caller]
) -> None:
    first, second = call(pair[0]), call(pair[1])
    provider.hold("before")
    dying = asyncio.ensure_future(first.execute("till.send", {"order": "A-1"}, "k"))
    await provider.until_held(1, [dying])
    await first.close()
    await asyncio.gather(dying, return_exceptions=True)
    found = await second.by_key("till.send", "k")
    assert found is not None
    assert ("RUNNING", "UNKNOWN") == (state_of(found), effect_of(found))
    resent = asyncio.ensure_future(second.execute("till.send", {"order": "A-1"}, "k"))
    provider.release()
    answer = await resent
    assert answer.action is not None
    assert ("SUCCEEDED", found.action_id) == (answer.word, answer.action.action_id)
    assert {"refunds": 0, "charges": 0, "messages": 1} == provider.counts()


async def test_the_action_can_be_read_as_soon_as_its_id_is_known(
    pair: tuple[Server, Server], database: Database, provider: Provider, call: Callable[[Server], Caller]
) -> None:
    mortal, witness = pair
    other = call(witness)
    ids: list[str] = []

    def kill(action_id: str) -> None:
        ids.append(action_id)
        mortal.kill()

    provider.hold("before")
    lost = await call(mortal).execute("till.send", {"order": "A-1"}, "k", on_action_id=kill)
    assert "unavailable" == lost.word
    action = await other.get(ids[0])
    assert ("k", "RUNNING", "UNKNOWN") == (action.idempotency_key, state_of(action), effect_of(action))
    ended = await other.until("till.send", "k", "AMBIGUOUS")
    assert ids[0] == ended.action_id
    assert ["admitted", "effect_started", "ambiguous"] == await check_chain(database.dsn, ended)


async def test_who_calls_is_never_read_from_the_payload(
    pair: tuple[Server, Server], call: Callable[[Server], Caller]
) -> None:
    answer = await call(pair[0]).execute("till.whose", {"tenant": "other", "subject": "root"}, "k")
    assert '{"subject":"developer","tenant":"dev"}' == answer.output
    assert answer.action is not None
    assert ("dev", "developer") == (answer.action.requester.tenant, answer.action.requester.subject)
