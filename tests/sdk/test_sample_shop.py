"""The sample shop against its provider: what each effect class leaves there, counted at the provider."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from placet.context import CallerInfo
from placet.failure import Cancelled, Failure
from placet.lookup import Committed, LookupContext, NotCommitted
from placet.sample import provider, shop
from placet.testing import FakeContext, FakeSyncContext

ORDER = {"order": "A-1001", "amount": "19.90"}


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = provider.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv(shop.PROVIDER_VARIABLE, address)
    yield address
    server.shutdown()
    server.server_close()


def _ask(address: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(address, data), timeout=5) as response:
        return json.load(response)


async def test_a_refund_repeated_under_its_effect_key_happens_once(base: str) -> None:
    context = FakeContext()
    first = await shop.refund(context, **ORDER)
    again = await shop.refund(FakeContext(effect_key=context.effect_key, attempt=2), **ORDER)
    assert first == again
    assert 1 == context.said.effects
    assert 1 == _ask(f"{base}/counts")["refunds"]


async def test_a_charge_is_checkpointed_before_it_is_sent_and_can_be_looked_up(base: str) -> None:
    context = FakeContext()
    charged = await shop.charge(context, **ORDER)
    assert [(context.effect_key, None)] == context.said.checkpoints
    assert _ask(f"{base}/charges?reference={context.effect_key}")["charge"] == charged.charge


async def test_a_charge_is_found_again_and_what_was_not_charged_is_not(base: str) -> None:
    def asked(effect_key: str) -> LookupContext:
        return LookupContext(
            action_id="a",
            capability="payments.charge",
            version="1",
            caller=CallerInfo(tenant="t", subject="s", kind="user"),
            attempt=1,
            effect_key=effect_key,
            until=time.monotonic() + 5,
        )

    context = FakeContext()
    charged = await shop.charge(context, **ORDER)
    assert Committed(charged) == await shop.find_charge(asked(context.effect_key))
    assert isinstance(await shop.find_charge(asked("never sent")), NotCommitted)


def test_a_message_sent_twice_is_two_messages(base: str) -> None:
    message = shop.Message(to="alice@example.com", text="hello")
    for _ in range(2):
        shop.send(FakeSyncContext(), message)
    assert {"refunds": 0, "charges": 0, "reimbursements": 0, "messages": 2} == _ask(f"{base}/counts")


async def test_without_a_provider_the_shop_keeps_its_own_books(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(shop.PROVIDER_VARIABLE, raising=False)
    context = FakeContext()
    assert await shop.refund(context, **ORDER) == await shop.refund(context, **ORDER)


async def test_an_unknown_order_is_a_failure_that_did_nothing() -> None:
    context = FakeContext()
    with pytest.raises(Failure) as caught:
        await shop.refund(context, order="A-9", amount="1.00")
    assert ("no_such_order", "not_done", 0) == (caught.value.code, caught.value.effect, context.said.effects)


async def test_the_export_sends_every_order_as_a_chunk() -> None:
    context = FakeContext()
    assert {"orders": 3} == await shop.export(context)
    assert [chunk["order"] for chunk in context.said.chunks if isinstance(chunk, dict)] == list(shop.ORDERS)
    assert 1.0 == [fraction for _, fraction in context.said.progress][-1]


@pytest.mark.parametrize(("phase", "happened"), [("before", 0), ("after", 1)])
async def test_an_effect_is_held_in_flight_on_either_side_of_happening(
    base: str, phase: str, happened: int
) -> None:
    _ask(f"{base}/hold", {"phase": phase})
    refunding = asyncio.ensure_future(shop.refund(FakeContext(), **ORDER))
    async with asyncio.timeout(5):
        while (await asyncio.to_thread(_ask, f"{base}/held"))["held"] != 1:
            pass
    assert (await asyncio.to_thread(_ask, f"{base}/counts"))["refunds"] == happened
    await asyncio.to_thread(_ask, f"{base}/release", {})
    await refunding
    assert 1 == _ask(f"{base}/counts")["refunds"]


@pytest.mark.parametrize(
    ("page", "body"), [("refunds", ORDER), ("messages", {}), ("hold", {"phase": "x"}), ("charges", [])]
)
def test_the_provider_refuses_what_it_does_not_understand(base: str, page: str, body: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        _ask(f"{base}/{page}", body)
    assert 400 == caught.value.code
    assert {0} == set(_ask(f"{base}/counts").values())


def test_the_provider_process_prints_its_port_and_ends_with_its_owner() -> None:
    command = [sys.executable, "-m", "placet.sample.provider"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert {"refunds": 0, "charges": 0, "reimbursements": 0, "messages": 0} == _ask(
            f"http://127.0.0.1:{port}/counts"
        )
        process.stdin.close()
        assert 0 == process.wait(5)


def test_contexts_of_a_rehearsal_remember_a_cancel() -> None:
    context = FakeSyncContext(seconds=0.0)
    assert (False, 0.0, False) == (context.cancelled, context.time_left(), context.wait_cancelled(0.0))
    context.cancel()
    assert context.wait_cancelled()
    with pytest.raises(Cancelled):
        context.raise_if_cancelled()
