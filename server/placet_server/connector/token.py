"""What a connector believes us by: a JSON Web Token for one attempt, signed with a key that GetServerInfo publishes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Literal

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

AUDIENCE = "placet-connector:"
# To have an attempt made, or only to be told of it.
Use = Literal["invoke", "lookup"]
LEEWAY_SECONDS = 60.0


class SigningKey:
    """`key_id` is the RFC 7638 thumbprint of the public key."""

    def __init__(self, pem: str | bytes) -> None:
        """Raises ValueError for what is no Ed25519 private key in PEM."""
        key = load_pem_private_key(pem if isinstance(pem, bytes) else pem.encode(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("not an Ed25519 private key")
        self.private_key = key
        public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        members = {"crv": "Ed25519", "kty": "OKP", "x": jwt.utils.base64url_encode(public).decode()}
        thumb = hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).digest()
        self.key_id = jwt.utils.base64url_encode(thumb).decode()
        self.jwk = {**members, "kid": self.key_id, "alg": "EdDSA", "use": "sig"}


class TokenSigner:
    """The first key signs; all of them are published."""

    def __init__(self, keys: Sequence[SigningKey], issuer: str) -> None:
        self._key = keys[0]
        self._issuer = issuer
        self.key_set = json.dumps({"keys": [key.jwk for key in keys]}, separators=(",", ":"))

    def token(
        self,
        use: Use,
        *,
        manifest: str,
        tenant: str,
        action_id: str,
        attempt: int,
        capability: str,
        version: str,
        input_json: str,
        seconds: float,
    ) -> str:
        """Good for so many seconds, and some for clocks that differ."""
        now = int(time.time())
        claims = {
            "iss": self._issuer,
            "aud": AUDIENCE + manifest,
            "use": use,
            "sub": action_id,
            "tenant": tenant,
            "attempt": attempt,
            "capability": capability,
            "version": version,
            "input_sha256": hashlib.sha256(input_json.encode(errors="surrogatepass")).hexdigest(),
            "iat": now,
            "exp": now + int(seconds + LEEWAY_SECONDS),
        }
        return jwt.encode(claims, self._key.private_key, algorithm="EdDSA", headers={"kid": self._key.key_id})


def new_private_key() -> str:
    """PEM."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
