"""JSON Web Tokens (RFC 7519, RFC 8725): one issuer, its keys, a fixed list of algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jwt

from placet_server.model.errors import Unauthenticated
from placet_server.rpc.identity.claim import ClaimMapping, caller_of
from placet_server.rpc.identity.jwks import KeySet
from placet_server.rpc.identity.source import Known

_PROBLEMS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "expired"),
    (jwt.ImmatureSignatureError, "not valid yet"),
    (jwt.InvalidIssuedAtError, "not valid yet"),
    (jwt.InvalidAudienceError, "wrong audience"),
    (jwt.InvalidIssuerError, "wrong issuer"),
    (jwt.MissingRequiredClaimError, "a required claim is missing"),
    (jwt.InvalidAlgorithmError, "an algorithm that is not accepted"),
    (jwt.InvalidKeyError, "a key of another kind"),
    (jwt.InvalidSignatureError, "wrong signature"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtRule:
    """What a token must say. `leeway_seconds` forgives clocks."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    leeway_seconds: float
    mapping: ClaimMapping


class JwtTokens:
    """Every token that reaches it is taken for a JWT."""

    def __init__(self, rule: JwtRule, keys: KeySet) -> None:
        self._rule = rule
        self._keys = keys

    async def establish(self, token: str) -> Known | None:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise Unauthenticated(problem="not a token of this server") from None
        if header.get("alg") not in self._rule.algorithms or "crit" in header:
            raise Unauthenticated(problem="an algorithm that is not accepted")
        key_id = header.get("kid")
        if not isinstance(key_id, str):
            raise Unauthenticated(problem="names no key")
        key = await self._keys.key(key_id)
        if key.algorithm_name != header["alg"]:
            raise Unauthenticated(problem="a key of another kind")
        claims = self._verified(token, key)
        return Known(
            caller=caller_of(claims, self._rule.mapping),
            expire_time=float(claims["exp"]) + self._rule.leeway_seconds,
        )

    def _verified(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        rule = self._rule
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(rule.algorithms),
                issuer=rule.issuer,
                audience=rule.audience,
                leeway=rule.leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            problem = next((text for kind, text in _PROBLEMS if isinstance(error, kind)), "not a valid token")
            raise Unauthenticated(problem=problem) from None
        return claims
