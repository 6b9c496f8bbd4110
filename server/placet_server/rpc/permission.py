"""Which scope each RPC needs."""

from __future__ import annotations

from typing import Any

from placet_server.model.caller import Caller
from placet_server.model.errors import ScopeMissing
from placet_server.rpc.call import Method, Next, Rpc

# Grants everything; for development.
EVERY_SCOPE = "*"

# None: being known is enough.
SCOPES: dict[str, str | None] = {
    "/placet.v1.RuntimeService/Execute": "actions.execute",
    "/placet.v1.RuntimeService/ExecuteStream": "actions.execute",
    "/placet.v1.RuntimeService/GetAction": "actions.read",
    "/placet.v1.RuntimeService/ListActions": "actions.read",
    "/placet.v1.RuntimeService/WaitAction": "actions.read",
    "/placet.v1.RuntimeService/WatchAction": "actions.read",
    "/placet.v1.RuntimeService/CancelAction": "actions.cancel",
    "/placet.v1.RuntimeService/GetCaller": None,
    "/placet.v1.RuntimeService/GetServerInfo": None,
    "/placet.v1.CatalogService/AdmitManifest": "catalog.admit",
    "/placet.v1.CatalogService/GetManifest": "catalog.read",
    "/placet.v1.CatalogService/ListManifests": "catalog.read",
    "/placet.v1.CatalogService/GetCapability": "catalog.read",
    "/placet.v1.CatalogService/ListCapabilities": "catalog.read",
}


def permitted_rpcs(caller: Caller) -> list[str]:
    """Full method names, without the leading slash, that the caller's scopes allow."""
    return sorted(path[1:] for path, scope in SCOPES.items() if _allowed(caller, scope))


def layer(method: Method, inner: Next) -> Next:
    scope = method.scope
    if scope is None:
        return inner

    async def permitted(rpc: Rpc[Any]) -> bytes | None:
        if not _allowed(rpc.caller, scope):
            raise ScopeMissing(scope=scope)
        return await inner(rpc)

    return permitted


def _allowed(caller: Caller, scope: str | None) -> bool:
    return scope is None or scope in caller.scopes or EVERY_SCOPE in caller.scopes
