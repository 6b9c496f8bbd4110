"""The app under load: one idempotent tool that does nothing, declared as one would declare a real one."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, Field

from placet.app import App

CAPABILITY = "benchmark.noop"

# 341 bytes.
INPUT_JSON = (
    '{"order":"A-1001-2233","customer":"alice.longname@example.com","amount":"1249.90","currency":"EUR",'
    '"quantity":3,"express":false,"note":"Leave it with the neighbour, second floor, if nobody opens",'
    '"lines":[{"sku":"CHAIR-OAK-2","count":2},{"sku":"TABLE-OAK-180","count":1}],'
    '"address":{"street":"Hauptstrasse 12","city":"Zürich","zip":"8001"}}'
)

app = App("benchmark")


class Line(BaseModel):
    sku: Annotated[str, Field(max_length=64)]
    count: Annotated[int, Field(ge=1)]


class Address(BaseModel):
    street: str
    city: str
    zip: Annotated[str, Field(pattern=r"^[0-9]{4,5}$")]


class Order(BaseModel):
    order: Annotated[str, Field(max_length=64)]
    customer: Annotated[str, Field(max_length=128)]
    amount: Annotated[str, Field(pattern=r"^[0-9]{1,7}\.[0-9]{2}$")]
    currency: Annotated[str, Field(min_length=3, max_length=3)]
    quantity: Annotated[int, Field(ge=1)]
    express: bool
    note: Annotated[str, Field(max_length=256)]
    lines: Annotated[list[Line], Field(max_length=8)]
    address: Address


class Receipt(BaseModel):
    order: str


@app.tool(CAPABILITY, effect="idempotent", effect_key_ttl=timedelta(days=1), no_approval="it does nothing")
async def noop(order: Order) -> Receipt:
    """Does nothing with an order."""
    return Receipt(order=order.order)
