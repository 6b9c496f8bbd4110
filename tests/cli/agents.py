"""Agents alone: what they call is the sample shop's."""

from dataclasses import dataclass

import placet
from placet import Budget, DelegateChoice, ModelSettings, ToolChoice


@dataclass
class Verdict:
    refund: bool
    reason: str


app = placet.App("helpers")
writer = app.agent("helpers.writer", model="fast", description="Words a letter.")
app.agent(
    "helpers.desk",
    model="openai:gpt-5",
    instructions="Help {{name}}.\nBe short.\x1b[31m",
    tools=["orders.*", ToolChoice("payments.refund", version="1", scopes=[])],
    delegates=[DelegateChoice(writer, budget=Budget(turns=3), scopes=["orders.read"])],
    output=Verdict,
    budget=Budget(turns=10, tokens=50_000, active_time=90),
    settings=ModelSettings(max_tokens=512, temperature=0.0, request_timeout=30),
    title="Desk",
)
