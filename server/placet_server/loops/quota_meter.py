"""Counts what tenants with a quota use."""

from __future__ import annotations

from placet_server.core.admission.quota import METER_SECONDS, Quotas
from placet_server.loops.loop import repeat


class QuotaMeter:
    """Every process of a deployment with quotas has one; who is first counts for all."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    async def run(self) -> None:
        await repeat("quota_meter", self.step, METER_SECONDS)

    async def step(self) -> bool:
        await self._quotas.meter()
        return False
