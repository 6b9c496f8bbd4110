"""`placet deliveries`: which there are, one of them, and sending it again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from placet.v1 import operations_service_pb2 as pb
from tests.cli.support import CommandLine, Ended
from tests.sdk.support import Script, answer_with, serving

ID = "7b0f0a52-6a0e-5d0e-9a5e-0d6f2f6d8a11"


def delivery(**members: Any) -> pb.Delivery:
    given: dict[str, Any] = {
        "delivery_id": ID,
        "tenant": "acme",
        "target": "desk",
        "type": "dev.placet.approval.requested",
        "subject": "approvals/1",
        "state": pb.DELIVERY_STATE_DEAD,
        "generation": 1,
        "attempts": 12,
        "attempts_max": 12,
        "create_time": Timestamp(seconds=1_900_000_000),
        "last_status": 500,
        "last_error": "answered 500",
    }
    return pb.Delivery(**(given | members))


@pytest.fixture
def script() -> Script:
    one = answer_with(pb.GetDeliveryResponse(delivery=delivery(data_json='{"title": "Pay \\u001b[31m"}')))
    page = answer_with(pb.ListDeliveriesResponse(deliveries=[delivery()]))
    sent = answer_with(pb.RedeliverCallbackResponse(delivery=delivery(state=pb.DELIVERY_STATE_PENDING)))
    return Script(ListDeliveries=[page] * 9, GetDelivery=[one] * 9, RedeliverCallback=[sent] * 9)


async def ended(cli: CommandLine, script: Script, *arguments: str) -> Ended:
    async with serving(script) as target:
        return await asyncio.to_thread(cli, "deliveries", *arguments, "--target", target)


@pytest.fixture
def cli(lone_cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("PLACET_TOKEN", "t")
    return lone_cli


async def test_they_are_listed_as_asked(cli: CommandLine, script: Script) -> None:
    shown = await ended(cli, script, "list", "--state", "dead", "--to", "desk", "--all-tenants")
    assert 0 == shown.code
    for word in (ID, "acme", "desk", "approval.requested", "DEAD", "12 of 12", "answered 500"):
        assert word in shown.out
    (asked,) = script.named("ListDeliveries")
    assert ("-", "desk", [pb.DELIVERY_STATE_DEAD]) == (asked.tenant, asked.filter.target, asked.filter.states)
    found = (await ended(cli, script, "list", "--json")).document["deliveries"]
    assert [(ID, "DEAD", None)] == [(each["delivery_id"], each["state"], each["data"]) for each in found]
    assert 2 == (await ended(cli, script, "list", "--state", "lost")).code


async def test_one_is_shown_and_sent_again_by_the_beginning_of_its_id(
    cli: CommandLine, script: Script
) -> None:
    shown = await ended(cli, script, "show", ID[:6])
    assert 0 == shown.code
    assert "\x1b" not in shown.out
    assert "Pay" in shown.out
    assert {"title": "Pay \x1b[31m"} == (await ended(cli, script, "show", ID, "--json")).document["data"]
    again = await ended(cli, script, "redeliver", ID[:6])
    assert (0, True) == (again.code, "PENDING" in again.out)
    assert {ID} == {
        each.delivery_id for each in (*script.named("GetDelivery"), *script.named("RedeliverCallback"))
    }
    assert 9 == (await ended(cli, script, "show", "ffff")).code
