"""The app under load: an idempotent tool that does nothing, with a schema such as a real one has, and one that streams.

It takes plain JSON, as what models cost in a handler is the handler's own and no part of the service.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

from placet.app import App
from placet.context import Context

CAPABILITY = "benchmark.noop"
APPROVED = "benchmark.approved"
STREAM, TICK = "benchmark.stream", "benchmark.tick"
CHUNK = "x" * 100

# 341 bytes.
INPUT_JSON = (
    '{"order":"A-1001-2233","customer":"alice.longname@example.com","amount":"1249.90","currency":"EUR",'
    '"quantity":3,"express":false,"note":"Leave it with the neighbour, second floor, if nobody opens",'
    '"lines":[{"sku":"CHAIR-OAK-2","count":2},{"sku":"TABLE-OAK-180","count":1}],'
    '"address":{"street":"Hauptstrasse 12","city":"Zürich","zip":"8001"}}'
)

INPUT: dict[str, Any] = json.loads(INPUT_JSON)

app = App("benchmark")

LINE = {
    "type": "object",
    "required": ["sku", "count"],
    "properties": {"sku": {"type": "string", "maxLength": 64}, "count": {"type": "integer", "minimum": 1}},
}
ADDRESS = {
    "type": "object",
    "required": ["street", "city", "zip"],
    "properties": {
        "street": {"type": "string"},
        "city": {"type": "string"},
        "zip": {"type": "string", "pattern": "^[0-9]{4,5}$"},
    },
}
ORDER = {
    "type": "object",
    "required": [
        "order",
        "customer",
        "amount",
        "currency",
        "quantity",
        "express",
        "note",
        "lines",
        "address",
    ],
    "properties": {
        "order": {"type": "string", "maxLength": 64},
        "customer": {"type": "string", "maxLength": 128},
        "amount": {"type": "string", "pattern": "^[0-9]{1,7}\\.[0-9]{2}$"},
        "currency": {"type": "string", "minLength": 3, "maxLength": 3},
        "quantity": {"type": "integer", "minimum": 1},
        "express": {"type": "boolean"},
        "note": {"type": "string", "maxLength": 256},
        "lines": {"type": "array", "maxItems": 8, "items": LINE},
        "address": ADDRESS,
    },
}
COUNT = {
    "type": "object",
    "required": ["chunks"],
    "properties": {"chunks": {"type": "integer", "minimum": 1, "maximum": 100000}},
}
RECEIPT = {"type": "object", "required": ["order"], "properties": {"order": {"type": "string"}}}


@app.tool(
    CAPABILITY,
    effect="idempotent",
    effect_key_ttl=timedelta(days=1),
    no_approval="it does nothing",
    input_schema=ORDER,
    output_schema=RECEIPT,
)
async def noop(order: dict[str, Any]) -> dict[str, Any]:
    """Does nothing with an order."""
    return {"order": order["order"]}


@app.tool(
    APPROVED, effect="unsafe", approval="1 of role:clerk", input_schema={"type": "object"}, output_schema={}
)
async def approved(nothing: dict[str, Any]) -> None:
    """Does nothing once somebody has said yes."""


@app.tool(STREAM, effect="read", input_schema=COUNT, output_schema={})
async def stream(wanted: dict[str, Any], context: Context) -> None:
    """Sends chunks."""
    for _ in range(wanted["chunks"]):
        await context.chunk(CHUNK)


@app.tool(TICK, effect="read", input_schema=COUNT, output_schema={})
async def tick(wanted: dict[str, Any], context: Context) -> None:
    """Sends five chunks a second, so that a thousand watchers are told five thousand."""
    for _ in range(wanted["chunks"]):
        await context.chunk(CHUNK)
        await asyncio.sleep(0.2)
