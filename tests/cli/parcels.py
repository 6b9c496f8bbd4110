"""An app whose one tool calls the other."""

from typing import Any

import placet

app = placet.App("parcels")


@app.tool("parcels.weigh", "read")
async def weigh(grams: int) -> int:
    return grams


@app.tool("parcels.ship", "read")
async def ship(context: placet.Context) -> Any:
    both = [await context.call(step, "parcels.weigh", {"grams": 5}) for step in ("first", "second")]
    return both
