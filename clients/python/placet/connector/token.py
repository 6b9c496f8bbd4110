"""Whom a connector believes: tokens that Placet signed for this very attempt."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import grpc

from placet.connector.refusal import Refused
from placet.v1 import action_pb2

AUDIENCE_PREFIX = "placet-connector:"
LEEWAY_SECONDS = 30.0
# To make an attempt, or only to tell of it.
Use = Literal["invoke", "lookup"]


class Said(Protocol):
    """What InvokeStart and LookupRequest have in common."""

    @property
    def action_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def capability(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def input_json(self) -> str: ...
    @property
    def caller(self) -> action_pb2.Caller: ...
    @property
    def invocation_token(self) -> str: ...


class TokenCheck(Protocol):
    async def prepare(self) -> None:
        """Once, at start: what would be wrong later is logged now."""

    async def check(self, said: Said, use: Use) -> None:
        """Raises Refused unless Placet itself says what is said, for this use."""


class Keys(Protocol):
    async def warm(self) -> None: ...

    async def key(self, key_id: str) -> Any: ...


class Unchecked:
    """For who lets nobody else dial: by client certificates, or on loopback in development."""

    async def prepare(self) -> None:
        return

    async def check(self, said: Said, use: Use) -> None:
        return


class SignedTokens:
    """EdDSA alone; for this app, this use, this attempt, this input."""

    def __init__(self, app: str, keys: Keys, issuer: str = "") -> None:
        """`issuer` "": any who has one of the keys."""
        self._audience = f"{AUDIENCE_PREFIX}{app}"
        self._keys = keys
        self._issuer = issuer

    async def prepare(self) -> None:
        await self._keys.warm()

    async def check(self, said: Said, use: Use) -> None:
        claims = await self._verified(said.invocation_token)
        for name, value in _claims_of(said, use).items():
            if type(claims.get(name)) is not type(value) or claims[name] != value:
                raise _refused(f"says another {name}")

    async def _verified(self, token: str) -> Mapping[str, Any]:
        import jwt

        from placet.connector.signing_key import KeysUnavailable

        try:
            header = jwt.get_unverified_header(token)
            key_id = header.get("kid")
            if header.get("alg") != "EdDSA" or "crit" in header or not isinstance(key_id, str):
                raise _refused("is not signed with EdDSA, or names no key")
            key = await self._keys.key(key_id)
            if key is None:
                raise _refused("is signed with a key that Placet does not have")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=["EdDSA"],
                audience=self._audience,
                issuer=self._issuer or None,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except KeysUnavailable as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"Placet's signing keys: {error}") from None
        except jwt.PyJWTError as error:
            raise _refused(f"is refused: {type(error).__name__}") from None
        return claims


def input_digest(input_json: str) -> str:
    """Hex SHA-256 of the input in UTF-8."""
    return hashlib.sha256(input_json.encode()).hexdigest()


def _claims_of(said: Said, use: Use) -> dict[str, str | int]:
    return {
        "use": use,
        "sub": said.action_id,
        "tenant": said.caller.tenant,
        "attempt": said.attempt,
        "capability": said.capability,
        "version": said.version,
        "input_sha256": input_digest(said.input_json),
    }


def _refused(text: str) -> Refused:
    return Refused(grpc.StatusCode.UNAUTHENTICATED, f"the invocation token {text}")
