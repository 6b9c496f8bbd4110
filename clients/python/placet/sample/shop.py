"""A shop with one tool of each effect class, and one that streams.

With $PLACET_SAMPLE_PROVIDER (the base address of `placet.sample.provider`) effects happen there; without it, in this
process.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from placet.app import App
from placet.context import Context, SyncContext
from placet.failure import Failure
from placet.lookup import Committed, LookupContext, NotCommitted, NotKnown
from placet.sample.provider import Ledger

PROVIDER_VARIABLE = "PLACET_SAMPLE_PROVIDER"

app = App("shop")

Money = Annotated[
    str, Field(pattern=r"^[0-9]{1,7}\.[0-9]{2}$", description="Decimal text, for example 19.90.")
]
OrderId = Annotated[str, Field(pattern=r"^[A-Z]-[0-9]{1,9}$", description="For example A-1001.")]


class Order(BaseModel):
    order: OrderId
    customer: str
    total: Money
    status: Literal["paid", "shipped"]


ORDERS = {
    found.order: found
    for found in (
        Order(order="A-1001", customer="alice@example.com", total="19.90", status="paid"),
        Order(order="A-1002", customer="bob@example.com", total="240.00", status="shipped"),
        Order(order="A-1003", customer="carol@example.com", total="7.50", status="paid"),
    )
}


class Refund(BaseModel):
    refund: str
    order: str
    amount: str


class Charge(BaseModel):
    charge: str
    reference: str
    order: str
    amount: str


class Reimbursement(BaseModel):
    reimbursement: str
    reference: str
    order: str
    amount: str


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: Annotated[str, Field(min_length=3, max_length=254)]
    text: Annotated[str, Field(min_length=1, max_length=2000)]


@app.tool("orders.lookup", "read", title="Look up an order")
async def look_up(order: OrderId) -> Order:
    """What was ordered, by whom, and where it stands."""
    return _order(order)


@app.tool(
    "payments.refund",
    "idempotent",
    title="Refund an order",
    hazards=["financial"],
    risk="medium",
    no_approval="sample data, no money moves",
    key_fields=["order", "amount"],
    effect_marked=True,
)
async def refund(context: Context, order: OrderId, amount: Money) -> Refund:
    """Gives money back. The provider remembers our effect key, so repeating is safe."""
    _order(order)
    key = await context.effect()
    body = {"order": order, "amount": amount}
    return Refund(**await _post("/refunds", body, key=key, seconds=context.time_left()))


@app.tool(
    "payments.goodwill",
    "idempotent",
    title="Refund as goodwill",
    hazards=["financial"],
    risk="medium",
    no_approval="sample data, no money moves; policies may ask for it from an amount on",
    key_fields=["order", "amount_cents"],
    effect_marked=True,
)
async def give_goodwill(
    context: Context, order: OrderId, amount_cents: Annotated[int, Field(ge=1, le=10_000_000)]
) -> Refund:
    """Gives back any amount, in whole cents, which a policy can bound."""
    _order(order)
    key = await context.effect()
    body = {"order": order, "amount": _decimal(amount_cents)}
    return Refund(**await _post("/refunds", body, key=key, seconds=context.time_left()))


@app.tool(
    "payments.charge",
    "reconcilable",
    title="Charge an order",
    hazards=["financial"],
    risk="medium",
    no_approval="sample data, no money moves",
    key_fields=["order", "amount"],
    effect_marked=True,
)
async def charge(context: Context, order: OrderId, amount: Money) -> Charge:
    """Takes money. The provider can be asked for our reference, which is stored before it is sent."""
    _order(order)
    await context.checkpoint(context.effect_key)
    await context.effect()
    body = {"reference": context.effect_key, "order": order, "amount": amount}
    return Charge(**await _post("/charges", body, seconds=context.time_left()))


@app.lookup("payments.charge")
async def find_charge(context: LookupContext) -> Committed | NotCommitted | NotKnown:
    """Asks the provider for the reference under which the charge was sent."""
    found = await asyncio.to_thread(_find, "charges", context.effect_key, context.time_left())
    return Committed(Charge(**found)) if found is not None else _nothing_found("charge")


@app.tool(
    "payments.reimburse",
    "reconcilable",
    title="Reimburse an order",
    hazards=["financial"],
    risk="medium",
    no_approval="sample data, no money moves; policies may ask for it from an amount on",
    key_fields=["order", "amount_cents"],
    effect_marked=True,
)
async def reimburse(
    context: Context, order: OrderId, amount_cents: Annotated[int, Field(ge=1, le=10_000_000)]
) -> Reimbursement:
    """Gives back any amount, in whole cents. The provider can be asked for our reference."""
    _order(order)
    await context.checkpoint(context.effect_key)
    await context.effect()
    body = {"reference": context.effect_key, "order": order, "amount": _decimal(amount_cents)}
    return Reimbursement(**await _post("/reimbursements", body, seconds=context.time_left()))


@app.lookup("payments.reimburse")
async def find_reimbursement(context: LookupContext) -> Committed | NotCommitted | NotKnown:
    """Asks the provider for the reference under which the reimbursement was sent."""
    found = await asyncio.to_thread(_find, "reimbursements", context.effect_key, context.time_left())
    return Committed(Reimbursement(**found)) if found is not None else _nothing_found("reimbursement")


@app.tool(
    "messages.send",
    "unsafe",
    title="Send a message",
    hazards=["message", "external_network"],
    risk="medium",
    no_approval="sample data, nobody is written to",
    key_fields=["to"],
    effect_marked=True,
)
def send(context: SyncContext, message: Message) -> dict[str, str]:
    """Sends a text. Nobody remembers it for us: repeating sends it again."""
    context.effect()
    sent: dict[str, str] = _post_blocking("/messages", message.model_dump(), "", context.time_left())
    return sent


@app.tool("reports.export", "read", title="Export all orders", streaming=True)
async def export(
    context: Context, pause_seconds: Annotated[float, Field(ge=0, le=60)] = 0.0
) -> dict[str, int]:
    """Sends every order as a chunk of its own, with progress; `pause_seconds` between two, to watch it."""
    orders = list(ORDERS.values())
    for number, order in enumerate(orders, start=1):
        if number > 1:
            await asyncio.sleep(pause_seconds)
        await context.chunk(order.model_dump())
        await context.progress(f"{number} of {len(orders)}", number / len(orders))
    return {"orders": len(orders)}


def _decimal(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


def _nothing_found(what: str) -> NotCommitted | NotKnown:
    if PROVIDER_VARIABLE not in os.environ:
        return NotKnown("what happened in a process is forgotten with it")
    return NotCommitted(retryable=True, message=f"the provider knows no such {what}")


def _order(order: str) -> Order:
    found = ORDERS.get(order)
    if found is None:
        raise Failure("no_such_order", f"there is no order {order}", category="not_found", effect="not_done")
    return found


async def _post(path: str, body: dict[str, Any], *, key: str = "", seconds: float) -> Any:
    return await asyncio.to_thread(_post_blocking, path, body, key, seconds)


def _post_blocking(path: str, body: dict[str, Any], key: str, seconds: float) -> Any:
    """An answer is definite; anything else leaves the effect unknown, which is what an undeclared exception means."""
    base = os.environ.get(PROVIDER_VARIABLE)
    if not base:
        return _in_memory(path, body, key)
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    try:
        with _opener.open(request, timeout=max(seconds, 0.001)) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if 400 <= error.code < 500:
            raise Failure("provider_refused", f"status {error.code}", effect="not_done") from None
        raise


def _find(kind: str, reference: str, seconds: float) -> Any:
    """None if there is none. Raises OSError if the provider does not answer."""
    base = os.environ.get(PROVIDER_VARIABLE)
    if not base:
        return _ledger.referred(kind, reference)
    url = f"{base}/{kind}?reference={urllib.parse.quote(reference)}"
    try:
        with _opener.open(url, timeout=max(seconds, 0.001)) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return None
        raise


def _in_memory(path: str, body: dict[str, Any], key: str) -> Any:
    match path:
        case "/refunds":
            return _ledger.refund(key, body)
        case "/charges" | "/reimbursements":
            return _ledger.refer(path[1:], body)
    return _ledger.message(body)


_ledger = Ledger()
# The provider is on loopback: a proxy of the environment must not see it.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
