"""Requests of every RPC with values at and beyond every bound: refused or answered in type, never a fault of ours."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from tests.hostile.dice import METHODS, Dice
from tests.hostile.good_requests import GOOD
from tests.hostile.served import Served
from tests.rpc.support import Refusal, bearer

EXAMPLES = 100
# gRPC's own answers have no ErrorInfo; at these sizes and deadlines only the last of time may come from it.
OWN_OF_TRANSPORT = {grpc.StatusCode.DEADLINE_EXCEEDED}


def test_every_rpc_that_takes_anything_has_a_good_request_to_spoil() -> None:
    taking = {path.rpartition("/")[2] for path, takes in METHODS.items() if takes.fields}
    assert taking == set(GOOD)


@pytest.mark.parametrize("path", METHODS)
async def test_no_request_makes_a_fault_of_the_server(server: Served, path: str) -> None:
    # Policies that come by dice would refuse what others throw.
    token = bearer(server.token("dice_policies" if "/PolicyService" in path else "dice", "dora"))
    async with grpc.aio.insecure_channel(server.target) as channel:
        for example in range(EXAMPLES):
            await ask(channel, path, Dice(f"{path} {example}").request(path), token)
    assert "incident" not in server.log()
    await server.answers()


async def ask(channel: grpc.aio.Channel, path: str, request: Message, token: Any) -> None:
    method: Any = channel.unary_stream(path)
    # A feed has no end.
    seconds = 0.05 if path.endswith(("/WatchEvents", "/WatchApprovals")) else 1.0
    try:
        async for _ in method(request.SerializeToString(), metadata=token, timeout=seconds):
            pass
    except grpc.aio.AioRpcError as error:
        refused = Refusal(error)
        assert refused.code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), (
            request,
            refused.message,
        )
        if not (refused.infos == [] and refused.code in OWN_OF_TRANSPORT):
            assert refused.reason, (request, refused.code, refused.message)
