"""The action id arrives early when the answer is late, and not otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from placet.v1 import action_pb2
from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.errors import WaitExpired
from placet_server.rpc.announcement import Announcer, announce_stream
from tests.rpc.support import ACTION_ID, Chosen, Setup, bearer, refusal, serving


def begin(channel: grpc.aio.Channel) -> Any:
    """A call whose initial metadata can be read before its answer; a unary stub shows both at once."""
    method: Any = channel.unary_stream("/placet.v1.RuntimeService/GetCaller")
    return method(b"", metadata=bearer())


async def end(call: Any) -> None:
    async for _ in call:
        pass


def admitted_then(announcer: Announcer, work: Any) -> Any:
    async def behave(rpc: Any) -> None:
        announcer.admitted(rpc, ACTION_ID)
        await work()

    return behave


async def test_a_slow_answer_is_preceded_by_the_action_id() -> None:
    announcer, answer = Announcer(), asyncio.Event()
    setup = Setup(behaviour=admitted_then(announcer, answer.wait), announcer=announcer)
    async with serving(setup) as running, asyncio.timeout(5):
        call = begin(running.channel)
        assert ACTION_ID == dict(await call.initial_metadata())["placet-action-id"]
        answer.set()
        await end(call)


async def test_a_quick_answer_is_not() -> None:
    announcer = Announcer(delay_seconds=5)
    setup = Setup(behaviour=admitted_then(announcer, lambda: asyncio.sleep(0)), announcer=announcer)
    async with serving(setup) as running:
        call = begin(running.channel)
        await end(call)
        assert "placet-action-id" not in dict(await call.initial_metadata())


async def test_a_slow_refusal_is_preceded_too() -> None:
    announcer, answer = Announcer(), asyncio.Event()

    async def fail() -> None:
        await answer.wait()
        raise WaitExpired(state="RUNNING")

    setup = Setup(behaviour=admitted_then(announcer, fail), announcer=announcer)
    async with serving(setup) as running, asyncio.timeout(5):
        call = begin(running.channel)
        assert ACTION_ID == dict(await call.initial_metadata())["placet-action-id"]
        answer.set()
        assert "WAIT_EXPIRED" == (await refusal(end(call))).reason


@pytest.mark.parametrize("delay_seconds", [0.0, 0.001, 0.003])
async def test_answers_that_race_their_announcement_all_arrive(delay_seconds: float) -> None:
    announcer = Announcer(delay_seconds=delay_seconds)
    turn = 0

    async def race() -> None:
        nonlocal turn
        turn += 1
        await asyncio.sleep(delay_seconds if turn % 2 else 0)
        if turn % 3 == 0:
            raise WaitExpired(state="RUNNING")

    setup = Setup(behaviour=admitted_then(announcer, race), announcer=announcer)
    async with serving(setup) as running, asyncio.timeout(20):
        calls = [running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer()) for _ in range(90)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    kinds = {type(result) for result in results}
    assert kinds <= {pb.GetCallerResponse, grpc.aio.AioRpcError}
    assert 90 == len(results)


async def test_cancelled_calls_do_not_stop_the_announcer() -> None:
    announcer, answer = Announcer(), asyncio.Event()
    setup = Setup(behaviour=admitted_then(announcer, answer.wait), announcer=announcer)
    async with serving(setup) as running, asyncio.timeout(10):
        for _ in range(30):
            call = begin(running.channel)
            await asyncio.sleep(0.001)
            call.cancel()
        call = begin(running.channel)
        assert ACTION_ID == dict(await call.initial_metadata())["placet-action-id"]
        answer.set()
        await end(call)


async def test_a_stream_whose_caller_left_before_its_first_message_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    class Late(Chosen):
        async def execute_stream(self, rpc: Any) -> AsyncIterator[pb.ExecuteStreamResponse]:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # As if the transport had not told it yet.
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
            try:
                await announce_stream(rpc, ACTION_ID)
                yield pb.ExecuteStreamResponse()
            finally:
                left.set()

    async with serving(Setup(servicer=Late())) as running, asyncio.timeout(10):
        invocation = action_pb2.Invocation(capability="a.b", input_json="{}")
        request = pb.ExecuteStreamRequest(invocation=invocation)
        call = running.runtime.ExecuteStream(request, metadata=bearer())
        reading = asyncio.ensure_future(call.read())
        await entered.wait()
        call.cancel()
        await left.wait()
        await asyncio.gather(reading, return_exceptions=True)
    assert "incident" not in caplog.text
