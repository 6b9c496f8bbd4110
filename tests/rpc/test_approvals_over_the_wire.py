"""Several decisions in one call, claims and a watch, over the wire of a whole server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from placet import App
from placet.aio import AsyncClient
from placet.approval_requests import Decision
from placet.errors import InvalidRequestError, PlacetError
from placet.v1 import action_pb2, decision_pb2
from placet.v1 import approval_service_pb2 as pb
from placet.v1 import runtime_service_pb2 as runtime
from placet_server.rpc.approval import ApprovalServicer
from tests.core.kernels import open_kernel, put
from tests.core.people import ANNA
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, invocation, running

RETURN = action_pb2.ON_WAIT_RETURN


async def waiting(client: Client, key: str) -> action_pb2.Action:
    asked = invocation("shop.refund", {"order": "1"}, key)
    asked.options.on_wait = RETURN
    request = runtime.ExecuteRequest(invocation=asked)
    return (await client.runtime.Execute(request, metadata=client.metadata, timeout=20)).action


async def test_each_of_several_decisions_counts_by_itself(database: Database, tmp_path: Path) -> None:
    app = App("shop")

    @app.tool("shop.refund", "idempotent", approval="1 of role:finance")
    async def refund(order: str) -> str:
        return order

    config = config_of(database.dsn, tmp_path, dev_people=["anna:finance"], queue_slots=0)
    async with running(config, [app]) as client:
        token = json.loads((tmp_path / "token.anna").read_text())["token"]
        anna = AsyncClient(client.channel, token)
        actions = [await waiting(client, f"k{n}") for n in range(3)]
        async with anna.watch_approvals(eligible_only=True, timeout=30) as watched:
            seen = [(await anext(watched)).approval for _ in actions]
        assert [a.approval_id for a in actions] == [a.approval_id for a in seen]
        again = anna.watch_approvals(after=watched.cursor, eligible_only=True, timeout=30)
        listed = [each async for each in anna.approvals(eligible_only=True, page_size=2)]
        assert [a.approval_id for a in seen] == [a.approval_id for a in listed]

        assert "anna" == (await anna.claim_approval(seen[0].approval_id, ttl=60)).claimed_by
        assert "" == (await anna.release_approval(seen[0].approval_id)).claimed_by

        answers = await anna.decide_many(
            [
                Decision(seen[0].approval_id, "approve", digest=seen[0].digest, decision_id="d"),
                Decision(seen[1].approval_id, "deny", digest=seen[1].digest, suggested_input={"order": "2"}),
                Decision(seen[2].approval_id, "approve", digest="0" * 64),
                Decision(seen[2].approval_id, "approve", digest=seen[2].digest, decision_id="-"),
                Decision(seen[0].approval_id, "approve", digest=seen[0].digest, decision_id="d"),
            ]
        )
        assert ["GRANTED", "DENIED", "STALE_DIGEST", "MALFORMED_REQUEST", "GRANTED"] == [
            told(answer) for answer in answers
        ]
        assert ["GRANTED", "DENIED"] == [told((await anext(again)).approval) for _ in range(2)]
        await again.aclose()
        with pytest.raises(InvalidRequestError):
            await anna.decide_many([Decision(seen[2].approval_id, "deny", digest="0" * 64)] * 51)
        last = await anna.decide(seen[2].approval_id, "approve", digest=seen[2].digest, ticket="OPS-1")
        assert ("OPS-1", '{"order":"1"}') == (last.decisions[0].evidence.ticket, last.input_json)
        assert last == await anna.approval(last.approval_id)


async def test_what_is_sensitive_and_who_may_decide_is_by_scope(database: Database) -> None:
    app = App("clinic")

    @app.tool("clinic.treat", "idempotent", sensitive=("/name",), approval="1 of role:finance")
    async def treat(name: str) -> None:
        pass

    reads, decides = "approvals.read", "approvals.decide"
    async with open_kernel(database.dsn, app) as kernel:
        action = (await put(kernel, "clinic.treat", {"name": "zoe"}, "k")).action
        request = pb.GetApprovalRequest(approval_id=action.approval_id or "")
        for scopes, shown, problem in (
            ({reads}, '{"name":null}', "scope_missing"),
            ({reads, decides}, '{"name":null}', ""),
            ({reads, decides, "operator"}, '{"name":null}', ""),
            ({reads, "payloads.sensitive"}, '{"name":"zoe"}', "scope_missing"),
            ({"*"}, '{"name":"zoe"}', ""),
        ):
            asked: Any = SimpleNamespace(request=request, caller=replace(ANNA, scopes=frozenset(scopes)))
            seen = (await ApprovalServicer(kernel).get_approval(asked)).approval
            assert (shown, problem) == (seen.input_json, seen.eligibility.problem)


def told(answer: decision_pb2.Approval | PlacetError) -> str:
    if isinstance(answer, PlacetError):
        return str(answer.reason)
    assert not answer.input_json or answer.decisions
    return decision_pb2.ApprovalState.Name(answer.state).removeprefix("APPROVAL_STATE_")
