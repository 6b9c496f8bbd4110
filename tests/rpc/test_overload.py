"""More calls than the server takes: the rest is refused at once, typed, and whoever waits disturbs nobody who works."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.caller import Caller
from placet_server.rpc.limit import Limiter
from tests.rpc.support import ACTION_ID, OneToken, Setup, bearer, refusal, serving


class Gate:
    """Holds every call until opened."""

    def __init__(self) -> None:
        self.entered = asyncio.Semaphore(0)
        self.left = asyncio.Semaphore(0)
        self.opened = asyncio.Event()

    async def __call__(self, rpc: Any) -> None:
        self.entered.release()
        try:
            await self.opened.wait()
        finally:
            self.left.release()


def get_caller(running: Any, token: str = "good") -> Any:
    return running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer(token))


async def test_calls_beyond_the_limit_are_refused_and_room_comes_back() -> None:
    gate = Gate()
    limiter = Limiter(calls_max=2, watches_max=1, tenant_share=1.0)
    async with serving(Setup(behaviour=gate, limiter=limiter)) as running:
        held = [get_caller(running) for _ in range(2)]
        for _ in held:
            await gate.entered.acquire()
        refused = await refusal(get_caller(running))
        gate.opened.set()
        await asyncio.gather(*held)
        await get_caller(running)
        assert (0, 0) == (limiter.calls.now, limiter.watches.now)
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED") == (refused.code, refused.reason)
    assert ("calls_in_flight", "2") == (
        refused.infos[0].metadata["limit"],
        refused.infos[0].metadata["limit_max"],
    )
    types = [detail.type_url.rsplit(".", 1)[1] for detail in refused.status.details]
    assert ["ErrorInfo", "RetryInfo", "QuotaFailure"] == types
    assert "grpc-retry-pushback-ms" not in refused.trailers


async def test_watches_are_counted_apart() -> None:
    gate = Gate()
    limiter = Limiter(calls_max=1, watches_max=1, tenant_share=1.0)
    async with serving(Setup(behaviour=gate, limiter=limiter)) as running:
        request = pb.WatchActionRequest(action_id=ACTION_ID)
        watching = running.runtime.WatchAction(request, metadata=bearer())
        await gate.entered.acquire()
        refused = await refusal(
            running.runtime.WaitAction(pb.WaitActionRequest(action_id=ACTION_ID), metadata=bearer())
        )
        working = get_caller(running)
        await gate.entered.acquire()
        gate.opened.set()
        await working
        watching.cancel()
    assert "watches_in_flight" == refused.infos[0].metadata["limit"]


async def test_one_tenant_leaves_room_for_another() -> None:
    gate = Gate()
    limiter = Limiter(calls_max=4, watches_max=4, tenant_share=0.5)
    tokens: list[Any] = [
        OneToken("a", Caller(tenant="a", subject="s", scopes=frozenset("*"))),
        OneToken("b", Caller(tenant="b", subject="s", scopes=frozenset("*"))),
    ]
    async with serving(Setup(behaviour=gate, limiter=limiter, tokens=tokens)) as running:
        held = [get_caller(running, "a") for _ in range(2)]
        for _ in held:
            await gate.entered.acquire()
        refused = await refusal(get_caller(running, "a"))
        held.append(get_caller(running, "b"))
        await gate.entered.acquire()
        gate.opened.set()
        await asyncio.gather(*held)
        await get_caller(running, "a")
        assert {} == dict(limiter.calls.by_tenant)
    assert "tenant_calls_in_flight" == refused.infos[0].metadata["limit"]


async def test_cancelled_calls_give_their_room_back() -> None:
    gate = Gate()
    limiter = Limiter(calls_max=1, watches_max=1, tenant_share=1.0)
    async with serving(Setup(behaviour=gate, limiter=limiter)) as running:
        held = get_caller(running)
        await gate.entered.acquire()
        held.cancel()
        async with asyncio.timeout(5):
            await gate.left.acquire()
        gate.opened.set()
        await get_caller(running)
