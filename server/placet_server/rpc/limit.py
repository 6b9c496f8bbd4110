"""Load shedding: typed, before any work, and fair between tenants."""

from __future__ import annotations

from placet_server.model.errors import Overloaded
from placet_server.rpc.call import Load, Method


class Gauge:
    """Calls in flight of one kind, in all and by tenant. Belongs to the event loop."""

    def __init__(self, name: str, most: int, tenant_share: float) -> None:
        """`tenant_share`: the part of `most` that one tenant may have, above 0 up to 1."""
        self.name = name
        self.most = most
        self.tenant_most = max(1, int(most * tenant_share))
        self.now = 0
        self.by_tenant: dict[str, int] = {}

    def enter(self) -> None:
        """Before the caller is known. Raises Overloaded."""
        if self.now >= self.most:
            raise Overloaded(limit=self.name, limit_max=self.most)
        self.now += 1

    def enter_tenant(self, tenant: str) -> str:
        """After. Returns the tenant, for `leave`. Raises Overloaded."""
        held = self.by_tenant.get(tenant, 0)
        if held >= self.tenant_most:
            raise Overloaded(limit=f"tenant_{self.name}", limit_max=self.tenant_most)
        self.by_tenant[tenant] = held + 1
        return tenant

    def leave(self, tenant: str) -> None:
        """Undoes both; `tenant` is empty for a call that did not enter as one's."""
        self.now -= 1
        if not tenant:
            return
        held = self.by_tenant[tenant] - 1
        if held:
            self.by_tenant[tenant] = held
        else:
            del self.by_tenant[tenant]


class Limiter:
    """Two gauges, as work and waiting are limited apart."""

    def __init__(self, *, calls_max: int, watches_max: int, tenant_share: float) -> None:
        self.calls = Gauge("calls_in_flight", calls_max, tenant_share)
        self.watches = Gauge("watches_in_flight", watches_max, tenant_share)

    def gauge(self, method: Method) -> Gauge:
        return self.watches if method.load is Load.WATCH else self.calls
