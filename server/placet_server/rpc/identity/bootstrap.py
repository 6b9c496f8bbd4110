"""The one-time token of who puts the first policies in force: made by a server whose operator has none yet, in a file
that only its owner reads."""

from __future__ import annotations

import secrets
from hashlib import sha256
from pathlib import Path

from placet_server.core.governance.bootstrap import TOKEN_TTL_SECONDS, bootstrap_caller
from placet_server.model.errors import Unauthenticated
from placet_server.model.policy import OPERATOR_TENANT
from placet_server.rpc.identity.dev_token import TOKEN_BYTES, write_token_file
from placet_server.rpc.identity.source import Known
from placet_server.store import bootstrap
from placet_server.store import policy as policies
from placet_server.store.clock import Clock
from placet_server.store.pool import Pool

TOKEN_PREFIX = "placet-bootstrap-"


class BootstrapTokens:
    """Looked at on every call: what was used a moment ago is worth nothing."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    async def establish(self, token: str) -> Known | None:
        """See `TokenSource`."""
        if not token.startswith(TOKEN_PREFIX):
            return None
        digest = sha256(token.encode()).digest()
        async with self._pool.connection() as connection:
            if not await bootstrap.is_valid(connection, digest, self._clock.now()):
                problem = (
                    "the bootstrap token is used, too old, of another store, or the operator has policies"
                )
                raise Unauthenticated(problem=problem)
        return Known(caller=bootstrap_caller(digest), expire_time=0.0)


async def write_bootstrap_token(
    pool: Pool, clock: Clock, path: Path, *, target: str, health_target: str
) -> bool:
    """False: the operator has policies already, and nothing is written. Raises OSError, StoreUnavailable."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    digest = sha256(token.encode()).digest()
    async with pool.connection() as connection:
        if await policies.get_set(connection, OPERATOR_TENANT) is not None:
            return False
        await bootstrap.put(connection, digest, TOKEN_TTL_SECONDS, clock.now())
    write_token_file(path, token=token, target=target, health_target=health_target)
    return True
