"""An app behind a connector is to its callers what it is inside the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import placet
from placet import errors
from placet.testing import Server, connector, server
from placet.v1.action_pb2 import ActionState
from tests.sdk.errand import Errands


@pytest.fixture
async def running() -> AsyncIterator[Server]:
    async with server() as started:
        yield started


async def _types(running: Server, action_id: str) -> list[str]:
    return [event.type.removeprefix("placet.action.") async for event in running.client().watch(action_id)]


async def test_what_a_handler_says_and_answers_is_recorded_as_inside_the_server(running: Server) -> None:
    async def run(context: placet.Context) -> dict[str, Any]:
        await context.checkpoint("op-1", {"page": 1})
        await context.progress("half", 0.5)
        await context.chunk("part")
        return {"tenant": context.tenant, "attempt": context.attempt, "left": context.time_left() > 1}

    errands = Errands()
    errands.runs["it"] = run
    errands.open.set()
    errands.thread_open.set()
    async with connector(errands.app, running) as served:
        client = running.client()
        result = await client.call("desk.run", {"what": "it"}, key="k", attempt_timeout=20.0)
        again = await client.call("desk.run", {"what": "it"}, key="k")
        assert (True, result.output) == (again.attached, again.output)
        assert {"tenant": errands.contexts[0].tenant, "attempt": 1, "left": True} == result.output
        types = await _types(running, result.action_id)
        assert ["admitted", "effect_checkpointed", "settled"] == [
            t for t in types if t not in ("progress", "chunk")
        ]
        assert {"progress", "chunk"} < set(types)
        paid = await client.call("desk.pay", {"amount": "1"}, key="p")
        assert "effect_started" in await _types(running, paid.action_id)
        assert "x" == (await client.call("desk.tell", {"text": "x"}, key="t")).output
        submitted = await client.submit("desk.tell", {"text": "y"}, key="s")
        assert (
            ActionState.ACTION_STATE_SUCCEEDED == (await client.wait(submitted.action_id, timeout=30)).state
        )
        # All is settled, so nothing is kept but that it is over.
        assert all(each.answer is None for each in served.table._ended.values())


async def test_failures_are_judged_as_inside_the_server(running: Server) -> None:
    async def decline(_: placet.Context) -> None:
        raise placet.Failure("card_declined", "no", effect="not_done")

    async def burst(_: placet.Context) -> None:
        raise ValueError("secret")

    errands = Errands()
    errands.runs |= {"decline": decline, "burst": burst}
    async with connector(errands.app, running):
        client = running.client()
        with pytest.raises(errors.FailedError) as failed:
            await client.call("desk.run", {"what": "decline"}, key="d")
        assert ("card_declined", "NOT_DONE") == (failed.value.failure_code, failed.value.effect)
        with pytest.raises(errors.AmbiguousError) as unknown:
            await client.call("desk.run", {"what": "burst"}, key="b")
        assert "secret" not in str(unknown.value)
        errands.entered.clear()
        submitted = await client.submit("desk.tell", {"text": "x"}, key="c")
        await errands.entered.wait()
        await client.cancel(submitted.action_id)
        ended = await client.wait(submitted.action_id, timeout=30)
        # It had begun, and its class does not say that repeating is safe.
        assert ActionState.ACTION_STATE_AMBIGUOUS == ended.state


async def test_an_effect_in_doubt_is_looked_up_where_it_was_begun(running: Server) -> None:
    """The handler is lost after it has touched the provider; its author's lookup knows that it did."""
    app, ledger = placet.App("desk"), []

    @app.tool("desk.pay", "reconcilable", effect_marked=True, reconcile_delay=0.01)
    async def pay(context: placet.Context, amount: str) -> dict[str, str]:
        ledger.append(await context.effect())
        raise ConnectionResetError

    @app.lookup("desk.pay")
    async def find(context: placet.LookupContext, amount: str) -> placet.Committed | placet.NotCommitted:
        found = context.effect_key in ledger
        return placet.Committed({"paid": amount}) if found else placet.NotCommitted(retryable=True)

    async with connector(app, running):
        client = running.client()
        with pytest.raises(errors.AmbiguousError) as unknown:
            await client.call("desk.pay", {"amount": "1"}, key="p")
        ended = await client.wait(unknown.value.action_id, timeout=30)
        while ended.state == ActionState.ACTION_STATE_AMBIGUOUS:
            await asyncio.sleep(0.05)
            ended = await client.get(unknown.value.action_id)
        assert ('{"paid":"1"}', 1) == (ended.output_json, len(ledger))


async def test_a_connector_that_is_gone_costs_nothing_but_time(running: Server) -> None:
    errands = Errands()
    errands.thread_open.set()
    client = running.client()
    async with connector(errands.app, running):
        pass
    with pytest.raises(errors.FailedError) as gone:
        await client.call("desk.tell", {"text": "x"}, key="k", timeout=2.0)
    assert ("CONNECTOR_UNAVAILABLE", "NOT_DONE") == (gone.value.reason, gone.value.effect)
    async with connector(errands.app, running):
        assert "x" == (await client.call("desk.tell", {"text": "x"}, key="k")).output


async def test_one_connector_has_another_do_a_step_of_its_work(running: Server) -> None:
    payments, warehouse, charged = placet.App("payments"), placet.App("warehouse"), []

    @payments.tool("payments.charge", "unsafe")
    def charge(context: placet.SyncContext, order: str) -> str:
        if order == "free":
            raise placet.Failure("nothing_to_pay", effect="not_done")
        charged.append((order, context.caller.subject))
        return f"charge of {order}"

    @warehouse.tool("warehouse.ship", "idempotent", effect_marked=True)
    async def ship(context: placet.Context, order: str) -> Any:
        return [await context.call("charge", "payments.charge", {"order": order}) for _ in range(2)]

    async with connector(payments, running), connector(warehouse, running):
        client = running.client()
        result = await client.call("warehouse.ship", {"order": "A-1"}, key="k", timeout=30)
        assert ["charge of A-1"] * 2 == result.output
        children = [child async for child in client.list(capabilities=["payments.charge"])]
        assert [("payments.charge", result.action_id, "charge")] == [
            (child.capability, child.parent_id, child.step_path) for child in children
        ]
        assert [("A-1", (await client.whoami()).caller.subject)] == charged
        with pytest.raises(errors.FailedError) as failed:
            await client.call("warehouse.ship", {"order": "free"}, key="f", timeout=30)
        assert ("call_failed", "NOT_DONE") == (failed.value.failure_code, failed.value.effect)


async def test_a_connector_that_runs_one_at_a_time_runs_the_child_of_what_waits_there(
    running: Server,
) -> None:
    """In threads, of which the parent keeps one."""
    app = placet.App("shop")

    @app.tool("shop.price", "read")
    def price(order: str) -> str:
        return f"price of {order}"

    @app.tool("shop.sell", "unsafe")
    def sell(context: placet.SyncContext, order: str) -> Any:
        return context.call("price", "shop.price", {"order": order})

    async with connector(app, running, concurrency_max=1):
        client = running.client()
        calls = [
            client.call("shop.sell", {"order": order}, key=order, timeout=30) for order in ("a", "b", "c")
        ]
        results = await asyncio.gather(*calls)
    assert ["price of a", "price of b", "price of c"] == [result.output for result in results]
