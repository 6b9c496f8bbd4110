"""Effects that may have happened, and verdicts on them, over the wire of a whole server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from placet import App
from placet.v1 import action_pb2, outcome_pb2
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as pb
from tests.postgres import Database
from tests.rpc.servers import Client, config_of, running
from tests.rpc.support import ACTION_ID, refusal

AMBIGUOUS, SUCCEEDED = action_pb2.ACTION_STATE_AMBIGUOUS, action_pb2.ACTION_STATE_SUCCEEDED


def shop() -> App:
    app = App("shop")

    @app.tool("shop.break", "unsafe", output_schema={"type": "object", "required": ["paid"]})
    async def break_off() -> None:
        raise ConnectionResetError

    return app


@pytest.fixture
async def client(database: Database, tmp_path: Path) -> AsyncIterator[Client]:
    async with running(config_of(database.dsn, tmp_path), [shop()]) as running_client:
        yield running_client


async def doubt(client: Client, key: str) -> str:
    refused = await refusal(client.execute("shop.break", {}, key))
    assert "EFFECT_AMBIGUOUS" == refused.reason
    asked = pb.GetActionRequest(key=pb.KeyRef(capability="shop.break", idempotency_key=key))
    return (await client.runtime.GetAction(asked, metadata=client.metadata)).action.action_id


async def listed(client: Client, **members: Any) -> recovery.ListAmbiguousResponse:
    asked = recovery.ListAmbiguousRequest(**members)
    return await client.recovery.ListAmbiguous(asked, metadata=client.metadata, timeout=20)


async def resolve(client: Client, action_id: str, **members: Any) -> action_pb2.Action:
    given: dict[str, Any] = {"verdict": recovery.VERDICT_DONE, "output_json": '{"paid":1}'} | members
    said = {"reason": "asked the bank", "evidence": "ticket 7"} | given
    asked = recovery.ResolveAmbiguousRequest(action_id=action_id, **said)
    return (await client.recovery.ResolveAmbiguous(asked, metadata=client.metadata, timeout=20)).action


async def test_what_may_have_happened_is_listed_page_by_page_oldest_first(client: Client) -> None:
    ids = [await doubt(client, f"k{n}") for n in range(3)]
    first = await listed(client, page_size=2)
    second = await listed(client, page_size=2, page_token=first.next_page_token)
    assert "" == second.next_page_token
    effects = [*first.effects, *second.effects]
    assert ids == [effect.action.action_id for effect in effects]
    for effect in effects:
        action = effect.action
        assert (AMBIGUOUS, outcome_pb2.EFFECT_STATE_UNKNOWN, "", True) == (
            action.state,
            action.outcome.effect,
            action.input_json,
            effect.attempt_may_act,
        )
        assert action.start_time.ToMicroseconds() <= effect.since_time.ToMicroseconds()
    assert ids == [e.action.action_id for e in (await listed(client, tenant="-")).effects]
    assert not (await listed(client, capabilities=["shop.other"])).effects
    asked = recovery.ListAmbiguousRequest(capabilities=["x"], page_token=first.next_page_token)
    refused = await refusal(client.recovery.ListAmbiguous(asked, metadata=client.metadata))
    assert "MALFORMED_REQUEST" == refused.reason


async def test_a_verdict_is_looked_at_then_told_once_for_all_resends(client: Client) -> None:
    action_id = await doubt(client, "k")
    assert AMBIGUOUS == (await resolve(client, action_id, validate_only=True)).state
    done = await resolve(client, action_id, expected_attempt=1)
    assert (SUCCEEDED, outcome_pb2.EFFECT_STATE_DONE, '{"paid":1}', "{}") == (
        done.state,
        done.outcome.effect,
        done.output_json,
        done.input_json,
    )
    assert done == await resolve(client, action_id, expected_attempt=1)
    assert not (await listed(client)).effects
    asked = pb.WatchActionRequest(action_id=action_id)
    events = [answer.event async for answer in client.runtime.WatchAction(asked, metadata=client.metadata)]
    assert ["ambiguous", "settled"] == [event.WhichOneof("event") for event in events[-2:]]
    assert '{"paid":1}' == events[-1].settled.output_json


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"output_json": "1"}, "MALFORMED_REQUEST"),
        ({"output_json": "{"}, "MALFORMED_JSON"),
        ({"output_json": ""}, "MALFORMED_REQUEST"),
        ({"verdict": recovery.VERDICT_NOT_DONE}, "MALFORMED_REQUEST"),
        ({"verdict": recovery.VERDICT_UNSPECIFIED}, "MALFORMED_REQUEST"),
        ({"reason": ""}, "MALFORMED_REQUEST"),
        ({"evidence": ""}, "MALFORMED_REQUEST"),
        ({"evidence": "a" * 513}, "MALFORMED_REQUEST"),
        ({"expected_attempt": -1}, "MALFORMED_REQUEST"),
        ({"expected_attempt": 2}, "STALE_DIGEST"),
        ({"verdict": recovery.VERDICT_NOT_DONE, "output_json": ""}, "STATE_CONFLICT"),
    ],
)
async def test_a_verdict_that_may_not_be_is_refused_and_changes_nothing(
    client: Client, members: dict[str, Any], reason: str
) -> None:
    action_id = await doubt(client, "k")
    for validate_only in (True, False):
        refused = await refusal(resolve(client, action_id, validate_only=validate_only, **members))
        assert reason == refused.reason
    (effect,) = (await listed(client)).effects
    assert (action_id, AMBIGUOUS) == (effect.action.action_id, effect.action.state)


async def test_a_conflict_says_how_the_action_stands_and_what_is_against_it(client: Client) -> None:
    action_id = await doubt(client, "k")
    await resolve(client, action_id)
    refused = await refusal(resolve(client, action_id, reason="another"))
    assert (grpc.StatusCode.FAILED_PRECONDITION, "STATE_CONFLICT") == (refused.code, refused.reason)
    metadata = dict(refused.infos[0].metadata)
    assert {"action_id": action_id, "state": "SUCCEEDED", "rule": "not_ambiguous"} == metadata
    nobody = await refusal(resolve(client, ACTION_ID))
    assert (grpc.StatusCode.NOT_FOUND, "NOT_FOUND") == (nobody.code, nobody.reason)
