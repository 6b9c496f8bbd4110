"""Who asks, as the server established it from transport and token."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placet_server.model.action import Requester


# Grants everything; for development.
EVERY_SCOPE = "*"
# For what is beyond the own tenant.
OPERATOR_SCOPE = "operator"
# For seeing what contracts call sensitive.
SENSITIVE_SCOPE = "payloads.sensitive"


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
class Delegate:
    """Somebody who acts for the subject."""

    subject: str
    kind: CallerKind = CallerKind.SERVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How the subject proved who it is: the class (`acr`) and the methods (`amr`, RFC 8176) that the issuer vouches
    for, and when (`auth_time`), in microseconds since the epoch.
    """

    strength: str = ""
    methods: tuple[str, ...] = ()
    time_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Never made from a payload. `delegation`: who acts for the subject, the nearest first; empty if it is there
    itself.
    """

    tenant: str
    subject: str
    kind: CallerKind = CallerKind.USER
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()
    delegation: tuple[Delegate, ...] = ()
    login: Login | None = None
    credential: Credential | None = None
    identity_source: str = "dev_token"
    # Made once: every call looks its caller up in several caches.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        told = (self.tenant, self.subject, self.kind, self.roles, self.groups, self.scopes, self.credential)
        object.__setattr__(self, "_hash", hash((told, self.delegation, self.login, self.identity_source)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_person(self) -> bool:
        """A person who is there itself: nobody else's word counts as a person's decision."""
        return self.kind is CallerKind.USER and not self.delegation


@lru_cache(maxsize=1024)
def attenuated(caller: Caller, capability: str, scopes: frozenset[str] | None) -> Caller:
    """In whose name a handler of that capability calls another one: its caller's, with the capability as one more who
    acts for it, and with no scope but those of these that its caller has; None: all that it has.
    """
    chain = caller.delegation
    if not chain or chain[0].subject != capability:
        chain = (Delegate(subject=capability), *chain)
    kept = caller.scopes
    if scopes is not None and EVERY_SCOPE not in scopes:
        kept = scopes if EVERY_SCOPE in kept else kept & scopes
    return replace(caller, delegation=chain, scopes=kept)


# Of claims of many actions most have the same one.
@lru_cache(maxsize=256)
def caller_of(requester: Requester) -> Caller:
    """Who asked, as the action kept it: for what is run when nobody waits."""
    return Caller(
        tenant=requester.tenant,
        subject=requester.subject,
        kind=CallerKind(requester.kind),
        roles=requester.roles,
        groups=requester.groups,
        scopes=frozenset(requester.scopes),
        delegation=requester.delegation,
        login=requester.login,
        credential=requester.credential,
        identity_source="stored",
    )
