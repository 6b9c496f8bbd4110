"""Two tools of a support desk, and an agent over them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

import placet
from placet import Budget, Context

app = placet.App("desk")

ORDERS = {"A-1001": 1990, "A-1002": 24_000}
Cents = Annotated[int, Field(ge=1, le=100_000)]


@app.tool("desk.look", "read")
async def look(order: str) -> dict[str, int]:
    """What was paid for an order, in cents."""
    if order not in ORDERS:
        raise placet.Failure(
            "no_such_order", f"there is no order {order}", category="not_found", effect="not_done"
        )
    return {"paid_cents": ORDERS[order]}


@app.tool("desk.refund", "idempotent", hazards=["financial"], approval="1 of role:finance; ttl=4h")
async def refund(context: Context, order: str, amount_cents: Cents) -> str:
    """Pays back what was paid for an order. The payment provider would be told `key`, and pay once for it."""
    key = await context.effect()
    return f"{amount_cents} cents for {order}, {key}"


app.agent(
    "desk.helper",
    model="ours",
    instructions="You help with orders. Look an order up before you refund it, and never refund more than was paid.",
    tools=["desk.*"],
    budget=Budget(turns=10, calls=20),
    title="Helps customers with their orders",
)
