"""Which message a call is: said well, or refused; and never half believed."""

from __future__ import annotations

from typing import Any

import pytest

from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.action import Message
from placet_server.rpc.message import check_no_message, message_of
from tests.rpc.support import Setup, bearer, refusal, serving

ID, TIME = "placet-message-id", "placet-message-time"
GOOD = ((ID, "m:1"), (TIME, "2030-01-31T12:00:00.5Z"))


async def test_a_call_says_which_message_it_is() -> None:
    seen: list[Any] = []

    async def see(rpc: Any) -> None:
        seen.append(message_of(rpc))

    async with serving(Setup(behaviour=see)) as running:
        for metadata in ((), GOOD):
            await running.runtime.GetCaller(pb.GetCallerRequest(), metadata=(*bearer(), *metadata))
    assert [None, Message(message_id="m:1", time_us=1_896_091_200_500_000)] == seen


BAD: list[tuple[tuple[str, str], ...]] = [
    GOOD[:1],
    GOOD[1:],
    (*GOOD, GOOD[0]),
    (*GOOD, GOOD[1]),
    ((ID, ""), GOOD[1]),
    ((ID, "a b"), GOOD[1]),
    ((ID, "x" * 129), GOOD[1]),
    *((GOOD[0], (TIME, text)) for text in ("", "now", "1896091200", "2030-01-31", "2030-02-31T12:00:00Z")),
    *((GOOD[0], (TIME, f"2030-01-31T12:00:00{zone}")) for zone in ("", "+01:00", "z", ".1234567Z")),
]


async def test_what_is_said_badly_is_refused_and_so_is_a_batch() -> None:
    async def see(rpc: Any) -> None:
        if rpc.method.name == "SubmitBatch":
            check_no_message(rpc)
        message_of(rpc)

    async with serving(Setup(behaviour=see)) as running:
        for metadata in BAD:
            call = running.runtime.GetCaller(pb.GetCallerRequest(), metadata=(*bearer(), *metadata))
            refused = await refusal(call)
            assert "MALFORMED_REQUEST" == refused.reason
            assert refused.bad_requests[0].field_violations[0].field in (ID, TIME)
        batch = pb.SubmitBatchRequest(items=[pb.SubmitRequest()])
        refused = await refusal(running.runtime.SubmitBatch(batch, metadata=(*bearer(), *GOOD)))
        assert "MALFORMED_REQUEST" == refused.reason


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z"])
async def test_the_ends_of_time_are_read(text: str) -> None:
    seen: list[Any] = []

    async def see(rpc: Any) -> None:
        seen.append(message_of(rpc))

    async with serving(Setup(behaviour=see)) as running:
        metadata = (*bearer(), GOOD[0], (TIME, text))
        await running.runtime.GetCaller(pb.GetCallerRequest(), metadata=metadata)
    assert isinstance(seen[0], Message)
