"""Who decides: a caller, as the server established it, with the authority that counts."""

from __future__ import annotations

from placet_server.core.decision.authority import AuthoritySource
from placet_server.model.approval import Voter
from placet_server.model.caller import Caller


async def voter_of(caller: Caller, source: AuthoritySource) -> Voter:
    """Raises AuthorityUnavailable."""
    authority, login = await source.of(caller), caller.login
    return Voter(
        subject=caller.subject,
        kind=caller.kind,
        roles=authority.roles,
        groups=authority.groups,
        delegated=bool(caller.delegation),
        login_strength="" if login is None else login.strength,
        login_methods=() if login is None else login.methods,
        login_time_us=None if login is None else login.time_us,
    )
