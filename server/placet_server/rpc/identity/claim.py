"""A verified token's claims → a Caller, by the operator's mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placet_server.model.caller import Caller, CallerKind, Credential, Delegate, Login
from placet_server.model.errors import Unauthenticated
from placet_server.rpc.identity.source import (
    NAME_LENGTH_MAX,
    check_names,
    check_subject,
    check_tenant,
    is_text,
)

Claims = Mapping[str, Any]

DELEGATION_MAX = 10
CREDENTIAL_LENGTH_MAX = 256
# The year 9999, in seconds.
TIME_MAX = 253_402_300_799


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMapping:
    """Names of claims; a dotted one reaches into objects unless a claim has just that name. Empty: not read.

    `tenant_fixed` stands for every token of an issuer that serves one tenant. `scopes_default` is what a token has
    when `scopes` is empty. Who acts for the subject is an object in `delegation` with claims of the same names and, if
    it acts for somebody who acts for the subject, that one within, as RFC 8693 has it in `act`.
    """

    tenant: str = "tenant"
    tenant_fixed: str = ""
    subject: str = "sub"
    kind: str = "kind"
    kind_default: CallerKind = CallerKind.USER
    roles: str = "roles"
    groups: str = "groups"
    scopes: str = "scope"
    scopes_default: tuple[str, ...] = ()
    delegation: str = "act"
    login_strength: str = "acr"
    login_methods: str = "amr"
    login_time: str = "auth_time"
    credential_handle: str = ""
    credential_issuer: str = ""
    credential_scopes: str = ""


def caller_of(claims: Claims, mapping: ClaimMapping) -> Caller:
    """Raises Unauthenticated for claims that are missing or of the wrong shape."""
    scopes = _texts(claims, mapping.scopes, "scopes") if mapping.scopes else list(mapping.scopes_default)
    return Caller(
        tenant=check_tenant(mapping.tenant_fixed or claim(claims, mapping.tenant)),
        subject=check_subject(claim(claims, mapping.subject)),
        kind=_kind(claims, mapping, mapping.kind_default),
        roles=tuple(check_names(_texts(claims, mapping.roles, "roles"), "roles")),
        groups=tuple(check_names(_texts(claims, mapping.groups, "groups"), "groups")),
        scopes=frozenset(check_names(scopes, "scopes")),
        delegation=_delegation(claims, mapping),
        login=_login(claims, mapping),
        credential=_credential(claims, mapping),
        identity_source="jwt",
    )


def claim(claims: Claims, name: str) -> Any:
    """None if it is not there."""
    if not name or name in claims:
        return claims.get(name)
    found: Any = claims
    for step in name.split("."):
        if not isinstance(found, Mapping) or step not in found:
            return None
        found = found[step]
    return found


def _texts(claims: Claims, name: str, what: str) -> list[str]:
    """A list of texts, or one text of words, as `scope` is written by RFC 9068."""
    found = claim(claims, name)
    if found is None:
        return []
    words = found.split() if isinstance(found, str) else found
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Unauthenticated(problem=f"no valid {what}")
    return words


def _kind(claims: Claims, mapping: ClaimMapping, default: CallerKind) -> CallerKind:
    found = claim(claims, mapping.kind)
    if found is None:
        return default
    if not isinstance(found, str) or found.upper() not in CallerKind.__members__:
        raise Unauthenticated(problem="no valid kind of caller")
    return CallerKind[found.upper()]


def _delegation(claims: Claims, mapping: ClaimMapping) -> tuple[Delegate, ...]:
    """A delegate that cannot be read is a reason to refuse: who acts for the subject may not go unseen."""
    chain: list[Delegate] = []
    found = claim(claims, mapping.delegation)
    while found is not None:
        if not isinstance(found, Mapping) or len(chain) == DELEGATION_MAX:
            raise Unauthenticated(problem="no valid delegation")
        subject = check_subject(claim(found, mapping.subject))
        chain.append(Delegate(subject=subject, kind=_kind(found, mapping, CallerKind.SERVICE)))
        found = claim(found, mapping.delegation)
    return tuple(chain)


def _login(claims: Claims, mapping: ClaimMapping) -> Login | None:
    strength = claim(claims, mapping.login_strength)
    methods = _texts(claims, mapping.login_methods, "methods of login")
    time = claim(claims, mapping.login_time)
    if strength is None and not methods and time is None:
        return None
    # Some issuers write the level as a number.
    strength = "" if strength is None else str(strength) if type(strength) is int else strength
    if not isinstance(strength, str) or len(strength) > NAME_LENGTH_MAX or not is_text(strength):
        raise Unauthenticated(problem="no valid strength of login")
    if time is not None and (type(time) not in (int, float) or not 0 <= time <= TIME_MAX):
        raise Unauthenticated(problem="no valid time of login")
    return Login(
        strength=strength,
        methods=tuple(check_names(methods, "methods of login")),
        time_us=None if time is None else int(time * 1_000_000),
    )


def _credential(claims: Claims, mapping: ClaimMapping) -> Credential | None:
    handle = claim(claims, mapping.credential_handle)
    if handle is None:
        return None
    issuer = claim(claims, mapping.credential_issuer)
    for word in (handle, "" if issuer is None else issuer):
        if not isinstance(word, str) or len(word) > CREDENTIAL_LENGTH_MAX or not is_text(word):
            raise Unauthenticated(problem="no valid credential")
    if not handle:
        raise Unauthenticated(problem="no valid credential")
    scopes = check_names(_texts(claims, mapping.credential_scopes, "credential scopes"), "credential scopes")
    return Credential(
        handle=handle,
        issuer=issuer or "",
        scopes=frozenset(scopes),
        expire_time_us=int(claims["exp"]) * 1_000_000,
    )
