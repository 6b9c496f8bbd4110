"""A lookup is the author's code: whatever it does, somebody gets a finding in time, and nobody a guess."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

import placet
from placet.lookup import LookupContext
from placet_server.core.execution.ending import Returned, ReturnedBadly
from placet_server.core.execution.engine import Engine
from placet_server.core.execution.finding import Committed, Finding, NotCommitted, NotKnown, StillRunning
from placet_server.core.execution.lookup import Question, look_up
from placet_server.core.execution.lookups import EACH_MAX, LOOKUPS_MAX, SHARE_MAX, THREADS_MAX, Lookups
from placet_server.model.action import Action, Requester
from placet_server.model.capability import Capability
from placet_server.model.contract import EffectClass, contract_for
from placet_server.model.lifecycle import ActionState
from tests.core.kernels import until

SCHEMA = '{"type": "object", "required": ["charge"]}'
CAPABILITY = Capability(
    name="pay", version="1", output_schema=SCHEMA, contract=contract_for(EffectClass.UNSAFE)
)
ACTION = Action(
    action_id="0199",
    requester=Requester(tenant="acme", subject="alice", kind="USER"),
    capability="pay",
    version="1",
    contract_digest="",
    effect_class="UNSAFE",
    state=ActionState.AMBIGUOUS,
    input_json='{"order": "A-1", "amount": "1.00"}',
    input_digest="",
    attempt=2,
    provider_operation="op",
    provider_cursor_json='{"page": 3}',
)
QUESTION = Question(action=ACTION, capability=CAPABILITY, seconds=5.0)
NO_THREAD = NotKnown(message="No thread is free for a lookup of this capability.")


class Bare:
    """What a lookup needs of an engine."""

    def __init__(self) -> None:
        self.lookups = Lookups()


def asked(find: Callable[..., Any]) -> placet.Tool:
    app = placet.App("bank")

    @app.tool("pay", "unsafe")
    def pay(order: str, amount: str) -> None:
        pass

    app.lookup("pay")(find)
    return app.tools[0]


async def finding(find: Callable[..., Any], question: Question = QUESTION) -> Finding:
    bare: Any = Bare()
    engine: Engine = bare
    try:
        return await look_up(engine, asked(find), question)
    finally:
        await engine.lookups.close()


async def test_it_is_told_of_the_attempt_and_of_as_much_of_the_input_as_it_wants() -> None:
    told: list[Any] = []

    async def find(context: LookupContext, order: str) -> placet.NotKnown:
        told.extend((context, order))
        return placet.NotKnown()

    await finding(find)
    context, order = told
    assert ("A-1", "acme", "placet-0199", 2) == (order, context.tenant, context.effect_key, context.attempt)
    assert ("op", {"page": 3}) == (context.provider_operation, context.provider_cursor)
    assert 0 < context.time_left() <= 5


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (placet.Committed({"charge": "ch_1"}), Returned),
        (placet.Committed({"refund": 1}), ReturnedBadly),
        (placet.Committed(float("nan")), ReturnedBadly),
        (
            placet.NotCommitted(retryable=True, message="no\x00"),
            NotCommitted(retryable=True, message="no\ufffd"),
        ),
        (placet.NotKnown("later"), NotKnown(message="later")),
        (StillRunning(), StillRunning()),
        (NotCommitted(not_running=True), NotCommitted(not_running=True)),
    ],
    ids=str,
)
async def test_what_it_says_is_what_is_found(answer: object, expected: object) -> None:
    async def find() -> Any:
        return answer

    def plain() -> Any:
        return answer

    for each in (find, plain):
        found = await finding(each)
        if isinstance(found, Committed):
            assert expected is type(found.ending)
        else:
            assert expected == found


async def _none() -> None:
    return None


async def _dict() -> Any:
    return {"charge": 1}


async def _raises() -> Any:
    raise ZeroDivisionError


async def _fails() -> Any:
    raise placet.Failure("bank_away")


async def _exits() -> Any:
    raise SystemExit


async def _cancels() -> Any:
    raise asyncio.CancelledError


def _in_a_thread() -> Any:
    raise KeyboardInterrupt


async def _badly_made() -> Any:
    return placet.NotCommitted(code=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "find",
    [_none, _dict, _raises, _fails, _exits, _cancels, _in_a_thread, _badly_made],
    ids=lambda f: f.__name__,
)
async def test_who_answers_badly_does_not_know(find: Callable[[], Awaitable[Any]]) -> None:
    assert isinstance(await finding(find), NotKnown)


async def test_who_never_returns_takes_no_thread_from_others() -> None:
    bare: Any = Bare()
    release = threading.Event()

    def hang() -> Any:
        release.wait()

    def find() -> placet.NotCommitted:
        return placet.NotCommitted()

    async def look(tenant: str, capability: str, does: Callable[..., Any]) -> Finding:
        requester = replace(ACTION.requester, tenant=tenant)
        action = replace(ACTION, requester=requester, capability=capability)
        seconds = 0.01 if does is hang else 5.0
        return await look_up(bare, asked(does), replace(QUESTION, action=action, seconds=seconds))

    for capability in ("pay", "ship", "tell"):
        for _ in range(EACH_MAX):
            await look("acme", capability, hang)
    assert SHARE_MAX == THREADS_MAX - bare.lookups.threads.free()
    assert NO_THREAD == await look("acme", "other", find)
    # What only one tenant has made hang, and what is nobody's.
    for capability in ("pay", "other"):
        assert isinstance(await look("globex", capability, find), NotCommitted), capability
    for tenant in ("globex", "initech"):
        for _ in range(EACH_MAX):
            await look(tenant, "pay", hang)
    assert NO_THREAD == await look("umbrella", "pay", find)
    assert isinstance(await look("umbrella", "other", find), NotCommitted)
    release.set()
    await until(lambda: bare.lookups.threads.free() == THREADS_MAX)
    assert isinstance(await look("acme", "pay", find), NotCommitted)
    await bare.lookups.close()


async def test_who_does_not_answer_is_given_up_and_counts_until_it_ends() -> None:
    hurried = replace(QUESTION, seconds=0.01)
    bare: Any = Bare()
    gate, release = asyncio.Event(), threading.Event()

    async def stubborn() -> Any:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    def plain() -> Any:
        release.wait()

    found = [await look_up(bare, asked(stubborn), hurried)]
    assert LOOKUPS_MAX - 1 == bare.lookups.free()
    found += [await look_up(bare, asked(plain), hurried) for _ in range(EACH_MAX + 1)]
    assert all(isinstance(each, NotKnown) for each in found)
    assert found[-1] == NO_THREAD
    assert EACH_MAX == THREADS_MAX - bare.lookups.threads.free()
    gate.set()
    release.set()
    await until(lambda: bare.lookups.free() == LOOKUPS_MAX and bare.lookups.threads.free() == THREADS_MAX)
    await bare.lookups.close()
