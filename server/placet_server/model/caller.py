"""Who asks, as the server established it from transport and token."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placet_server.model.action import Requester


class CallerKind(StrEnum):
    USER = "USER"
    SERVICE = "SERVICE"
    AGENT = "AGENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An opaque handle to a provider credential that somebody else keeps.

    `expire_time_us`: microseconds since the epoch.
    """

    handle: str
    issuer: str = ""
    scopes: frozenset[str] = frozenset()
    expire_time_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Never made from a payload."""

    tenant: str
    subject: str
    kind: CallerKind = CallerKind.USER
    roles: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()
    credential: Credential | None = None
    identity_source: str = "dev_token"
    # Made once: every call looks its caller up in several caches.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        told = (self.tenant, self.subject, self.kind, self.roles, self.scopes, self.credential)
        object.__setattr__(self, "_hash", hash((told, self.identity_source)))

    def __hash__(self) -> int:
        return self._hash


# Of claims of many actions most have the same one.
@lru_cache(maxsize=256)
def caller_of(requester: Requester) -> Caller:
    """Who asked, as the action kept it: for what is run when nobody waits."""
    return Caller(
        tenant=requester.tenant,
        subject=requester.subject,
        kind=CallerKind(requester.kind),
        roles=requester.roles,
        scopes=frozenset(requester.scopes),
        credential=requester.credential,
        identity_source="stored",
    )
