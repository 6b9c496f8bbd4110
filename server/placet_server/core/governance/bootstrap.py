"""Who puts the first policies in force, by a token that is good for that alone, and once.

It is used up in the tx of what it is used for: of two who use it, or two of a store, at once, one does."""

from __future__ import annotations

from datetime import datetime

from placet_server.model.caller import OPERATOR_SCOPE, Caller, CallerKind, Credential
from placet_server.model.errors import ScopeMissing, Unauthenticated
from placet_server.model.policy import OPERATOR_TENANT
from placet_server.store import bootstrap
from placet_server.store.connection import Connection

TOKEN_TTL_SECONDS = 86_400.0
# No token of another source is of tenant "-", so no other caller has this credential there.
_ISSUER = "placet bootstrap"


def bootstrap_caller(digest: bytes) -> Caller:
    """The token's digest goes with the action, which uses it."""
    return Caller(
        tenant=OPERATOR_TENANT,
        subject="bootstrap",
        kind=CallerKind.SERVICE,
        scopes=frozenset({"policy.admit", OPERATOR_SCOPE}),
        credential=Credential(handle=digest.hex(), issuer=_ISSUER),
        identity_source="bootstrap",
    )


def is_bootstrap(caller: Caller) -> bool:
    return (
        caller.tenant == OPERATOR_TENANT
        and caller.credential is not None
        and caller.credential.issuer == _ISSUER
    )


def check_no_bootstrap(caller: Caller) -> None:
    """Of what the token is not good for. Raises ScopeMissing."""
    if is_bootstrap(caller):
        raise ScopeMissing(scope="policy.read")


async def use_up(connection: Connection, caller: Caller, revision: int, now: datetime | None) -> None:
    """In the tx of the admission of a revision, which must be the first; nothing for other callers. Raises
    Unauthenticated.
    """
    if not is_bootstrap(caller):
        return
    assert caller.credential is not None
    if revision != 1 or not await bootstrap.use(connection, bytes.fromhex(caller.credential.handle), now):
        raise Unauthenticated(problem="the bootstrap token is used, or the operator has policies")
