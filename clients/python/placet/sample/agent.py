"""An agent over the sample shop. Without $PLACET_SAMPLE_MODEL its model is the local one, which needs no key."""

from __future__ import annotations

import os
from hashlib import sha256

from placet.agent import Budget, ToolChoice
from placet.app import App

MODEL_VARIABLE = "PLACET_SAMPLE_MODEL"
LOCAL_MODEL = "local:placet-local"

app = App("shop_helper")

model = os.environ.get(MODEL_VARIABLE) or LOCAL_MODEL

helper = app.agent(
    "shop.helper",
    # A version never changes what it promises, and its model is part of that.
    version="1" if model == LOCAL_MODEL else f"1-{sha256(model.encode()).hexdigest()[:8]}",
    model=model,
    title="Helps with orders",
    description="Looks orders up, charges, refunds and reimburses them, and writes to customers.",
    instructions=(
        "You help with the orders of a shop. Look an order up before you do anything about it. Do only what you are "
        "asked for, and tell at the end what was done and what was not."
    ),
    tools=[
        ToolChoice("orders.lookup"),
        ToolChoice("payments.refund"),
        ToolChoice("payments.reimburse"),
        ToolChoice("payments.charge"),
        ToolChoice("messages.send"),
        ToolChoice("reports.export"),
    ],
    budget=Budget(turns=20, calls=40),
    no_approval="sample data; what it calls has its own rules",
)
