"""Has effects that may have happened looked up, until somebody knows."""

from __future__ import annotations

from placet_server.core.kernel import Kernel
from placet_server.core.recovery.reconcile import Reconciler, Route
from placet_server.loops.loop import repeat
from placet_server.model.gate_errors import CapabilityNotFound, HandlerNotFound
from placet_server.store.reconcile import Kind

POLL_SECONDS = 1.0


class EffectReconciler:
    """Every process has one; what one asks about the others pass over."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.reconciler = Reconciler(kernel.engine, self._route_of)

    async def run(self) -> None:
        await repeat("effect_reconciler", self.step, POLL_SECONDS, self.reconciler.pause)

    async def step(self) -> bool:
        """True if there may be more at once."""
        return not self._kernel.is_draining and await self.reconciler.run_once()

    async def _route_of(self, kind: Kind) -> Route | None:
        tool = self._kernel.engine.handlers.find(kind.capability, kind.version, kind.tenant)
        if tool is None:
            return None
        try:
            found = await self._kernel.catalog.resolve(
                kind.tenant, kind.capability, kind.version, even_withdrawn=True
            )
        except (CapabilityNotFound, HandlerNotFound):
            return None
        return Route(found.capability, tool)
