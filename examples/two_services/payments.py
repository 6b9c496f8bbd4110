"""Charges cards. The provider is a file with a line for each charge; it knows every charge by its reference."""

from __future__ import annotations

import json
import os
from pathlib import Path

import placet

LEDGER = Path(os.environ.get("LEDGER", "charges.jsonl"))

app = placet.App("payments")


@app.tool(
    "cards.charge",
    "reconcilable",
    hazards=["financial"],
    no_approval="an example, and its money is not real",
    effect_marked=True,
)
def charge(context: placet.SyncContext, order: str, amount: str) -> dict[str, str]:
    """Takes the amount for an order."""
    reference = context.effect()
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps({"reference": reference, "order": order, "amount": amount}) + "\n")
    return {"charge": reference, "amount": amount}


@app.lookup("cards.charge")
def find(context: placet.LookupContext) -> placet.Committed | placet.NotCommitted:
    """Asks the provider, where an attempt was lost before it could answer."""
    for line in LEDGER.read_text(encoding="utf-8").splitlines() if LEDGER.exists() else ():
        made = json.loads(line)
        if made["reference"] == context.effect_key:
            return placet.Committed({"charge": made["reference"], "amount": made["amount"]})
    return placet.NotCommitted(retryable=True)
