"""An app with every effect class, marked and unmarked, whose effects happen at the provider."""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from typing import Any

import placet
from placet.context import SyncContext
from tests.faults.processes import POLL_SECONDS, PROVIDER_VARIABLE

app = placet.App("till")


async def ask(method: str, path: str, body: Any = None, key: str = "") -> Any:
    """One HTTP request that ends when it is cancelled. Raises OSError for a lost reply."""
    host, port = os.environ[PROVIDER_VARIABLE].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n"
    head += f"Idempotency-Key: {key}\r\n\r\n" if key else "\r\n"
    try:
        writer.write(head.encode() + text)
        answer = await reader.read()
    finally:
        writer.close()
    _, gap, content = answer.partition(b"\r\n\r\n")
    if not gap:
        raise ConnectionResetError("no reply")
    return json.loads(content)


@app.tool("till.look", "read", key="optional")
async def look(context: placet.Context, wait: bool = False) -> int:
    """The number of the attempt; with `wait` the first attempt never ends."""
    if wait and context.attempt == 1:
        await asyncio.Event().wait()
    await ask("GET", "/counts")
    return context.attempt


@app.tool("till.refund", "idempotent", effect_marked=True, hazards=["financial"], no_approval="a test")
async def refund(context: placet.Context, order: str) -> Any:
    key = await context.effect()
    return await ask("POST", "/refunds", {"order": order, "amount": "1.00"}, key)


@app.tool("till.narrate", "idempotent", streaming=True, hazards=["financial"], no_approval="a test")
async def narrate(context: placet.Context, order: str) -> Any:
    """Says something before the provider answers, and something after."""
    for number in range(3):
        await context.chunk(f"before {number}")
    done = await ask("POST", "/refunds", {"order": order, "amount": "1.00"}, context.effect_key)
    for number in range(3):
        await context.chunk(f"after {number}")
    return done


@app.tool("till.refund_unmarked", "idempotent", hazards=["financial"], no_approval="a test")
async def refund_unmarked(context: placet.Context, order: str) -> Any:
    return await ask("POST", "/refunds", {"order": order, "amount": "1.00"}, context.effect_key)


# Nobody looks these two up by himself: tests see what a crash alone makes of them.
@app.tool(
    "till.charge",
    "reconcilable",
    effect_marked=True,
    reconcile_automatic=False,
    hazards=["financial"],
    no_approval="a test",
)
async def charge(context: placet.Context, order: str) -> Any:
    await context.checkpoint(context.effect_key)
    await context.effect()
    return await _charge(context, order)


@app.lookup("till.charge")
async def find_charge(context: placet.LookupContext) -> placet.Committed | placet.NotCommitted:
    return await _find_charge(context)


@app.tool(
    "till.charge_unmarked",
    "reconcilable",
    reconcile_automatic=False,
    hazards=["financial"],
    no_approval="a test",
)
async def charge_unmarked(context: placet.Context, order: str) -> Any:
    return await _charge(context, order)


async def _charge(context: placet.Context, order: str) -> Any:
    body = {"reference": context.effect_key, "order": order, "amount": "1.00"}
    return await ask("POST", "/charges", body)


@app.lookup("till.charge_unmarked")
async def find_charge_unmarked(context: placet.LookupContext) -> placet.Committed | placet.NotCommitted:
    return await _find_charge(context)


@app.tool("till.pay", "reconcilable", effect_marked=True, hazards=["financial"], no_approval="a test")
async def pay(context: placet.Context, order: str) -> Any:
    """What becomes of it is looked up."""
    await context.effect()
    return await _charge(context, order)


@app.lookup("till.pay")
async def find_payment(context: placet.LookupContext) -> placet.Committed | placet.NotCommitted:
    return await _find_charge(context)


async def _find_charge(context: placet.LookupContext) -> placet.Committed | placet.NotCommitted:
    found = await ask("GET", f"/charges?reference={context.effect_key}")
    return placet.NotCommitted(retryable=True) if "error" in found else placet.Committed(found)


@app.tool("till.send", "unsafe", effect_marked=True, hazards=["message"], no_approval="a test")
async def send(context: placet.Context, order: str) -> Any:
    await context.effect()
    return await ask("POST", "/messages", {"to": order, "text": "paid"})


@app.tool("till.settle", "composed")
async def settle(context: placet.Context, order: str) -> Any:
    """What it calls waits for people."""
    return await context.call("bury", "till.grave", {"order": order})


@app.tool("till.tour", "composed")
async def tour(context: placet.Context, order: str) -> Any:
    return await context.call("refund", "till.refund", {"order": order})


@app.tool("till.ship", "idempotent", effect_marked=True, hazards=["message"], no_approval="a test")
async def ship(context: placet.Context, order: str) -> Any:
    """Its effect is its child's, which is unsafe."""
    return await context.call("notice", "till.send", {"order": order})


@app.tool(
    "till.parcel",
    "idempotent",
    effect_marked=True,
    concurrency_max=1,
    hazards=["message"],
    no_approval="a test",
)
async def parcel(context: placet.Context, order: str, stuck: bool = False) -> None:
    """Step by step, one parcel at a time; with `stuck` the first attempt never comes to the third step."""
    await context.call("pick", "till.send", {"order": f"pick {order}"})
    await context.call("pack", "till.send", {"order": f"pack {order}"})
    if stuck and context.attempt == 1:
        await asyncio.Event().wait()
    await context.call("post", "till.send", {"order": f"post {order}"})


@app.tool("till.send_unmarked", "unsafe", hazards=["message"], no_approval="a test")
def send_unmarked(context: SyncContext, order: str) -> Any:
    """In a thread, unlike the others."""
    request = urllib.request.Request(
        os.environ[PROVIDER_VARIABLE] + "/messages", json.dumps({"to": order, "text": "paid"}).encode()
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=context.time_left()) as response:
        return json.load(response)


@app.tool("till.ponder", "unsafe", effect_marked=True, hazards=["write"], no_approval="a test")
async def ponder(context: placet.Context, order: str) -> Any:
    """Waits for the provider before it marks its effect, so that it is running and certainly not begun."""
    await ask("POST", "/refunds", {"order": order, "amount": "0.00"}, context.effect_key + "-" + order)
    await context.effect()
    return await ask("POST", "/messages", {"to": order, "text": "pondered"})


@app.tool("till.brief", "idempotent", key_ttl=60.0, hazards=["financial"], no_approval="a test")
async def brief(context: placet.Context, order: str) -> Any:
    """Its key is soon forgotten."""
    return await ask("POST", "/refunds", {"order": order, "amount": "1.00"}, context.effect_key)


@app.tool("till.grave", "unsafe", hazards=["financial"], approval="1 of role:finance")
async def grave(order: str) -> str:
    """Somebody has to say yes to it first."""
    return order


@app.tool("till.clock", "read", key="optional")
async def clock() -> float:
    """The wall clock of the server."""
    return time.time()


@app.tool("till.through", "unsafe", effect_marked=True, hazards=["message"], no_approval="a test")
async def through(context: placet.Context, order: str) -> Any:
    """Sends a message and goes on until the test lets it go."""
    await context.effect()
    sent = await ask("POST", "/messages", {"to": order, "text": "through"})
    while "error" in await ask("GET", f"/charges?reference={order}"):  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)
    return sent


@app.tool("till.block", "idempotent", hazards=["write"], no_approval="a test")
async def block(seconds: float) -> float:
    """A mistake of its author: it blocks the event loop of the whole server."""
    time.sleep(seconds)  # noqa: ASYNC251
    return seconds


@app.tool("till.whose", "read", key="optional")
async def whose(context: placet.Context, tenant: str = "", subject: str = "") -> dict[str, str]:
    """Who the server says that it is, whatever the input says."""
    return {"tenant": context.caller.tenant, "subject": context.caller.subject}
