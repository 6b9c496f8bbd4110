"""A client that meets what people have to say yes to raises, returns or holds, as it was told, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from placet import App, Context, errors
from placet.testing import server
from placet.v1 import action_pb2
from placet.v1 import approval_service_pb2 as approvals
from placet.v1.decision_pb2 import (
    APPROVAL_STATE_REVOKED,
    VOTE_VERDICT_APPROVE,
    VOTE_VERDICT_DENY,
    VoteVerdict,
)
from tests.sdk.conftest import Both

Connect = Callable[[str], Both]
WAITING = action_pb2.ACTION_STATE_WAITING

app = App("patient")


@app.tool("patient.pay", "idempotent", approval="1 of user:developer; requester=may")
async def pay(amount: str) -> str:
    return f"paid {amount}"


@app.tool("patient.settle", "composed")
async def settle(context: Context, amount: str) -> str:
    return str(await context.call("pay", "patient.pay", {"amount": amount}))


@pytest.fixture
async def both(connect: Connect) -> AsyncIterator[Both]:
    async with server(app) as started:
        made = connect(started.target)
        made.client._token = started.token
        yield made


async def decide(both: Both, approval_id: str, verdict: VoteVerdict.ValueType) -> None:
    get = approvals.GetApprovalRequest(approval_id=approval_id)
    seen = (await both.ask("_ask", "GetApproval", get, 20.0)).approval
    request = approvals.DecideApprovalRequest(
        approval_id=approval_id, digest=seen.digest, verdict=verdict, decision_id="d", reason="so"
    )
    await both.ask("_ask", "DecideApproval", request, 20.0)


async def test_each_way_to_wait(both: Both) -> None:
    with pytest.raises(errors.ApprovalRequired) as caught:
        await both.ask("call", "patient.pay", {"amount": "1"}, key="k")
    error = caught.value
    assert ("AFTER_WAIT", "NOT_DONE") == (error.retry_advice, error.effect)
    assert [error.approval_id] == [wait.approval_id for wait in error.waits]
    returned = await both.ask("call", "patient.pay", {"amount": "1"}, key="k", on_wait="return")
    assert (WAITING, None, True) == (returned.action.state, returned.output, returned.attached)
    resumed = await both.ask("resume", error.action_id, on_wait="return")
    assert WAITING == resumed.action.state
    for on_wait, raised in (("return", type(None)), ("fail", errors.ApprovalRequired)):
        events, _, met = await both.events("stream", "patient.pay", {"amount": "1"}, key="k", on_wait=on_wait)
        assert (["admitted", "waiting"], raised) == ([e.WhichOneof("event") for e in events], type(met))
    held = asyncio.ensure_future(both.ask("call", "patient.pay", {"amount": "1"}, key="k", on_wait="hold"))
    waited = asyncio.ensure_future(both.ask("wait", error.action_id))
    await decide(both, error.approval_id, VOTE_VERDICT_APPROVE)
    assert "paid 1" == (await held).output
    assert action_pb2.ACTION_STATE_SUCCEEDED == (await waited).state


async def test_a_stream_of_what_is_parked_ends_as_a_call_does(both: Both) -> None:
    asked = {"amount": "5"}
    for on_wait, raised in (("return", type(None)), ("fail", errors.ApprovalRequired)):
        events, _, met = await both.events("stream", "patient.settle", asked, key="k", on_wait=on_wait)
        assert ("parked", raised) == (events[-1].WhichOneof("event"), type(met))
    returned = await both.ask("call", "patient.settle", asked, key="k", on_wait="return")
    (wait,) = returned.action.outcome.waits
    held = asyncio.ensure_future(both.events("stream", "patient.settle", asked, key="k", on_wait="hold"))
    await decide(both, wait.approval_id, VOTE_VERDICT_APPROVE)
    events, stream, met = await held
    assert ("paid 5", None) == (stream.output, met)
    assert ["requeued", "resumed", "settled"] == [event.WhichOneof("event") for event in events[-3:]]


async def test_a_yes_is_taken_back(both: Both) -> None:
    submitted = await both.ask("submit", "patient.pay", {"amount": "3"}, delay=600)
    approval_id = submitted.action.approval_id
    await decide(both, approval_id, VOTE_VERDICT_APPROVE)
    taken = await both.ask("revoke", approval_id, "d", reason="wrong")
    assert APPROVAL_STATE_REVOKED == taken.state
    with pytest.raises(errors.ApprovalRevoked):
        await both.ask("resume", submitted.action_id)


async def test_a_no_is_raised_as_what_it_is(both: Both) -> None:
    returned = await both.ask("call", "patient.pay", {"amount": "2"}, key="no", on_wait="return")
    await decide(both, returned.action.approval_id, VOTE_VERDICT_DENY)
    with pytest.raises(errors.ApprovalDenied) as caught:
        await both.ask("call", "patient.pay", {"amount": "2"}, key="no", on_wait="hold")
    assert ("NEW_KEY", "NOT_DONE") == (caught.value.retry_advice, caught.value.effect)
    with pytest.raises(errors.DecisionConflict):
        await decide(both, returned.action.approval_id, VOTE_VERDICT_APPROVE)
