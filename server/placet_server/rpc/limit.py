"""Load shedding: typed, before any work, and fair between tenants."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from placet_server.model.errors import Overloaded
from placet_server.rpc.call import Load, Method, Next, Rpc


class Gauge:
    """Calls in flight of one kind. Belongs to the event loop."""

    def __init__(self, name: str, most: int, tenant_share: float) -> None:
        """`tenant_share`: the part of `most` that one tenant may have, above 0 up to 1."""
        self.name = name
        self.most = most
        self.tenant_most = max(1, int(most * tenant_share))
        self.now = 0
        self.by_tenant: defaultdict[str, int] = defaultdict(int)


class Limiter:
    """Two gauges, and the two layers that keep them: in all before the caller is known, by tenant after."""

    def __init__(self, *, calls_max: int, watches_max: int, tenant_share: float) -> None:
        self.calls = Gauge("calls_in_flight", calls_max, tenant_share)
        self.watches = Gauge("watches_in_flight", watches_max, tenant_share)

    def layer(self, method: Method, inner: Next) -> Next:
        gauge = self._gauge(method)

        async def limited(rpc: Rpc[Any]) -> bytes | None:
            if gauge.now >= gauge.most:
                raise Overloaded(limit=gauge.name, limit_max=gauge.most)
            gauge.now += 1
            try:
                return await inner(rpc)
            finally:
                gauge.now -= 1

        return limited

    def tenant_layer(self, method: Method, inner: Next) -> Next:
        gauge = self._gauge(method)
        if gauge.tenant_most >= gauge.most:
            return inner
        by_tenant = gauge.by_tenant

        async def limited(rpc: Rpc[Any]) -> bytes | None:
            tenant = rpc.caller.tenant
            if by_tenant[tenant] >= gauge.tenant_most:
                raise Overloaded(limit=f"tenant_{gauge.name}", limit_max=gauge.tenant_most)
            by_tenant[tenant] += 1
            try:
                return await inner(rpc)
            finally:
                by_tenant[tenant] -= 1
                if not by_tenant[tenant]:
                    del by_tenant[tenant]

        return limited

    def _gauge(self, method: Method) -> Gauge:
        return self.watches if method.load is Load.WATCH else self.calls
