"""Issuers, keys, certificates made for one test."""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from placet_server.rpc.identity.claim import ClaimMapping
from placet_server.rpc.identity.jwks import KeySet, from_file
from placet_server.rpc.identity.jwt import JwtRule, JwtTokens

ISSUER = "https://issuer.test"
AUDIENCE = "placet"


@dataclass(kw_only=True)
class Issuer:
    """Signs tokens; `write` publishes its keys."""

    keys: dict[str, ec.EllipticCurvePrivateKey] = field(
        default_factory=lambda: {"k1": ec.generate_private_key(ec.SECP256R1())}
    )

    def token(self, *, key_id: str = "k1", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        payload = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60, "sub": "alice", "tenant": "acme"}
        payload |= {"scope": "actions.read", **claims}
        payload = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(payload, self.keys[key_id], "ES256", headers={"kid": key_id} | (headers or {}))

    def document(self) -> str:
        keys = []
        for key_id, key in self.keys.items():
            public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
            keys.append(public | {"kid": key_id, "use": "sig", "alg": "ES256"})
        return json.dumps({"keys": keys})

    def public_pem(self) -> bytes:
        return (
            self.keys["k1"]
            .public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )


async def jwt_tokens(
    path: Path,
    *,
    mapping: ClaimMapping | None = None,
    algorithms: tuple[str, ...] = ("ES256",),
    leeway_seconds: float = 0.0,
    refresh_seconds_min: float = 0.0,
) -> JwtTokens:
    keys = KeySet(from_file(path), refresh_seconds=3600, refresh_seconds_min=refresh_seconds_min)
    await keys.load()
    rule = JwtRule(
        issuer=ISSUER,
        audience=AUDIENCE,
        algorithms=algorithms,
        leeway_seconds=leeway_seconds,
        mapping=mapping or ClaimMapping(),
    )
    return JwtTokens(rule, keys)


@dataclass(frozen=True, kw_only=True)
class Certified:
    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._certificate = self._signed(
            self._name, self._key, [x509.BasicConstraints(ca=True, path_length=None)], days=1
        )

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self) -> Certified:
        return self.certify({NameOID.COMMON_NAME: "localhost"}, names=[x509.DNSName("localhost")])

    def certify(
        self,
        subject: dict[x509.ObjectIdentifier, str],
        *,
        names: list[x509.GeneralName] | None = None,
        days: int = 1,
    ) -> Certified:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject.items()])
        extensions: list[x509.ExtensionType] = [x509.SubjectAlternativeName(names)] if names else []
        certificate = self._signed(name, key, extensions, days=days)
        return Certified(
            certificate=certificate.public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extensions: list[Any], *, days: int
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())
