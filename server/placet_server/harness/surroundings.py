"""What all runs of a server have."""

from __future__ import annotations

from dataclasses import dataclass, field

from placet_server.harness.observer import NoSpans, RunSpans, TurnCounts, Uncounted
from placet_server.harness.provider.adapter import Models
from placet_server.harness.tools import Offers
from placet_server.model.usage import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`budget_max`: no run spends more."""

    models: Models
    offers: Offers
    budget_max: Budget
    counts: TurnCounts = field(default_factory=Uncounted)
    spans: RunSpans = field(default_factory=NoSpans)
