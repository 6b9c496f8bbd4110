"""A reader that takes nothing is let go after a while, knows why once it reads on, and holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from placet.v1 import event_pb2
from placet.v1 import runtime_service_pb2 as pb
from tests.rpc.support import Chosen, Setup, bearer, refusal, serving

ACTION_ID = "0199b0c0-0000-7000-8000-000000000001"
SECONDS = 20


class Talker(Chosen):
    """Says more than any window holds."""

    def __init__(self) -> None:
        super().__init__(None)
        self.said: list[int] = []
        self.ended: list[asyncio.Event] = []

    async def watch_action(self, rpc: Any) -> AsyncIterator[Any]:
        place = len(self.said)
        self.said.append(0)
        self.ended.append(asyncio.Event())
        try:
            for _ in range(2000):
                self.said[place] += 1
                chunk = event_pb2.OutputChunk(text="x" * 200_000)
                yield pb.WatchActionResponse(event=event_pb2.ActionEvent(chunk=chunk))
        finally:
            self.ended[place].set()


async def rest(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_a_reader_that_stalled_is_told_so_and_others_read_on() -> None:
    talker = Talker()
    async with serving(Setup(servicer=talker, reader_stall_seconds=0.3)) as running, asyncio.timeout(SECONDS):
        request = pb.WatchActionRequest(action_id=ACTION_ID)
        stalled = running.runtime.WatchAction(request, metadata=bearer())
        await stalled.read()
        async with grpc.aio.insecure_channel(running.target) as channel:
            method: Any = channel.unary_stream("/placet.v1.RuntimeService/WatchAction")
            quick = method(request.SerializeToString(), metadata=bearer())
            for _ in range(100):
                assert await quick.read()
            quick.cancel()
        await talker.ended[0].wait()
        # Bounded by the window of the transport, not by what there is to say.
        assert 200 > talker.said[0]
        refused = await refusal(rest(stalled))
    assert (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED") == (refused.code, refused.reason)
    assert ("reader_stalled", "1") == tuple(
        refused.infos[0].metadata[name] for name in ("limit", "limit_max")
    )


async def test_one_that_never_reads_again_does_not_keep_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placet_server.rpc.error_mapping.STATUS_SECONDS", 0.2)
    talker = Talker()
    setup = Setup(servicer=talker, reader_stall_seconds=0.2)
    async with serving(setup) as running, asyncio.timeout(SECONDS):
        stalled = running.runtime.WatchAction(pb.WatchActionRequest(action_id=ACTION_ID), metadata=bearer())
        await stalled.read()
        await talker.ended[0].wait()
        # Counted once all is done.
        while not setup.metrics.rpcs.series:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
