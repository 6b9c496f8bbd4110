"""Who calls, by the sources that are configured."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from time import time
from typing import Any

from placet_server.model.caller import Caller
from placet_server.model.errors import Unauthenticated
from placet_server.rpc.call import Rpc
from placet_server.rpc.identity.source import CertificateSource, Known, TokenSource

DECISION_SECONDS = 60.0
DECISIONS_MAX = 10_000
TOKEN_BYTES_MAX = 8192


class DecisionCache:
    """Callers by digest of their evidence, for at most a minute and never longer than the evidence holds."""

    def __init__(self) -> None:
        self._decisions: dict[bytes, tuple[float, Caller]] = {}

    def get(self, digest: bytes) -> Caller | None:
        found = self._decisions.get(digest)
        return found[1] if found is not None and time() < found[0] else None

    def put(self, digest: bytes, known: Known) -> None:
        if len(self._decisions) >= DECISIONS_MAX:
            # Dicts keep their order of insertion: the oldest quarter goes.
            for old in list(self._decisions)[: DECISIONS_MAX // 4]:
                del self._decisions[old]
        self._decisions.pop(digest, None)
        expire_time = time() + DECISION_SECONDS
        if known.expire_time is not None:
            expire_time = min(expire_time, known.expire_time)
        self._decisions[digest] = (expire_time, known.caller)


class Identity:
    """A bearer token decides if there is one, also when it does not hold; else the client certificate."""

    def __init__(self, tokens: Sequence[TokenSource], certificates: CertificateSource | None = None) -> None:
        self._tokens = tuple(tokens)
        self._certificates = certificates
        self._cache = DecisionCache()

    def known(self, rpc: Rpc[Any]) -> Caller | None:
        """Without waiting: by a certificate, or by a token that was looked at lately; None leaves it to `establish`.

        Raises Unauthenticated.
        """
        if not rpc.authorizations:
            return self._by_certificate(rpc)
        return self._cache.get(_digest(_bearer(rpc)))

    async def establish(self, rpc: Rpc[Any]) -> Caller:
        """Asks the sources for whose the token is. Raises Unauthenticated."""
        token = _bearer(rpc)
        for source in self._tokens:
            found = await source.establish(token)
            if found is not None:
                self._cache.put(_digest(token), found)
                return found.caller
        raise Unauthenticated(problem="not a token of this server")

    def _by_certificate(self, rpc: Rpc[Any]) -> Caller:
        pem = (
            self._certificates.evidence(rpc.context.auth_context())
            if self._certificates is not None
            else None
        )
        if pem is None or self._certificates is None:
            raise Unauthenticated(problem="no token")
        digest = sha256(pem).digest()
        caller = self._cache.get(digest)
        if caller is None:
            known = self._certificates.establish(pem)
            if known.expire_time is not None and known.expire_time < time():
                # TLS looked at it when the connection began.
                raise Unauthenticated(problem="the certificate has expired")
            self._cache.put(digest, known)
            caller = known.caller
        return caller


def _digest(token: str) -> bytes:
    """Tokens themselves are not kept."""
    return sha256(token.encode()).digest()


def _bearer(rpc: Rpc[Any]) -> str:
    headers = rpc.authorizations
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token or len(token) > TOKEN_BYTES_MAX:
        raise Unauthenticated(problem="no single bearer token")
    return token.strip()
