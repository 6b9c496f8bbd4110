"""Ships orders, once they are paid: by a call to another service, through Placet."""

from __future__ import annotations

import placet

app = placet.App("warehouse")


@app.tool("warehouse.ship", "idempotent", effect_marked=True)
async def ship(context: placet.Context, order: str, amount: str) -> dict[str, str]:
    """Charges for an order and sends it off."""
    try:
        paid = await context.call("charge", "cards.charge", {"order": order, "amount": amount})
    except placet.CallFailed as error:
        if error.outcome.effect == "not_done":
            raise placet.Failure("not_paid", str(error), effect="not_done") from None
        raise
    assert isinstance(paid, dict)
    parcel = await context.effect()
    # Here the carrier would be asked, with `parcel` as the idempotency key.
    return {"order": order, "charge": str(paid["charge"]), "parcel": parcel}
