"""Health is answered by threads: a loop that hangs shows, and so does a store that went away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from queue import Queue
from threading import Thread
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from placet_server.model.errors import StoreUnavailable
from placet_server.rpc.health import FEED_LAG_SECONDS, FeedProbe, HealthPort, LoopPulse, StoreProbe
from placet_server.store.feed import FeedLag
from placet_server.telemetry.metric import Histogram

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)


@asynccontextmanager
async def health_port(checks: dict[str, Callable[[], bool]], stall_seconds: float) -> AsyncIterator[int]:
    lag = Histogram((0.1, 1.0))
    pulse = LoopPulse(asyncio.get_running_loop(), stall_seconds=stall_seconds, lag=lag)
    port = HealthPort("127.0.0.1:0", {"live": pulse.answers, **checks}, pulse)
    port.start()
    try:
        yield port.port
    finally:
        await asyncio.to_thread(port.close)


def statuses(port: int, service: str, until: int, seconds: float = 5.0) -> list[Any]:
    """Every status that differs from the one before, until the wanted one. Blocks."""
    seen: list[Any] = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = HealthStub(channel)
        for answer in stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=seconds):
            seen.append(answer.status)
            if answer.status == until:
                return seen
    return seen


async def test_a_blocked_event_loop_is_not_live_and_then_it_is_again() -> None:
    async with health_port({}, stall_seconds=0.5) as port:
        seen = Queue[list[Any]]()
        Thread(target=lambda: seen.put(statuses(port, "live", NOT_SERVING, seconds=10))).start()
        # Blocks this loop, on purpose, until a probe has noticed.
        assert NOT_SERVING == seen.get(timeout=10)[-1]
        assert SERVING == (await asyncio.to_thread(statuses, port, "live", SERVING))[-1]


async def test_an_unknown_service_is_not_found() -> None:
    def ask(port: int) -> Any:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = HealthStub(channel)
            stub.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=5)

    async with health_port({}, stall_seconds=5) as port:
        with pytest.raises(grpc.RpcError) as caught:
            await asyncio.to_thread(ask, port)
    assert grpc.StatusCode.NOT_FOUND == caught.value.code()


async def test_a_store_that_goes_away_fails_storage_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    away = False

    async def look() -> None:
        if away:
            raise StoreUnavailable(detail="refused")

    probe = StoreProbe(look, every_seconds=0.1)
    running = asyncio.ensure_future(probe.run())
    try:
        async with health_port({"storage": probe.ok}, stall_seconds=5) as port:
            await asyncio.to_thread(statuses, port, "storage", SERVING)
            away = True
            await asyncio.to_thread(statuses, port, "storage", NOT_SERVING)
            assert not probe.ok()
            away = False
            await asyncio.to_thread(statuses, port, "storage", SERVING)
            assert probe.ok()
    finally:
        running.cancel()
    assert 1 == caplog.text.count("the store does not answer")


async def test_a_probe_that_fails_unexpectedly_counts_as_a_miss() -> None:
    async def look() -> None:
        raise ValueError

    probe = StoreProbe(look, every_seconds=0.1)
    await probe.look()
    assert not probe.ok()


async def test_watchers_that_leave_while_they_are_told_hold_up_nobody() -> None:
    async with (
        health_port({"ready": lambda: True}, stall_seconds=5.0) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub: Any = HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="ready")
        for _ in range(40):
            watchers = [stub.Watch(request) for _ in range(8)]
            await watchers[0].read()
            for watcher in watchers:
                watcher.cancel()
            answer = await stub.Check(request, timeout=5)
            assert SERVING == answer.status


async def test_a_feed_that_is_held_up_is_said_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lags = [FeedLag(0.1), FeedLag(FEED_LAG_SECONDS, 4711), FeedLag(60.0, 4711), FeedLag(), FeedLag(99.0)]
    left = iter(lags)

    async def look() -> FeedLag:
        return next(left)

    probe = FeedProbe(look)
    caplog.set_level(logging.INFO, "placet.health")
    for lag in lags:
        await probe.look()
        assert lag.seconds == probe.seconds
    told = [record.getMessage() for record in caplog.records]
    assert 3 == len(told)
    assert "backend 4711" in told[0]
    assert "nothing holds up" in told[1]
    assert "a prepared one" in told[2]
