"""The client certificate that the transport has verified → a caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from cryptography import x509
from cryptography.x509.oid import NameOID

from placet_server.model.caller import Caller, CallerKind, Login
from placet_server.model.errors import Unauthenticated
from placet_server.rpc.identity.source import Known, check_subject, check_tenant

# What a certificate shows is that its owner has the key ("pop" of RFC 8176), not when somebody unlocked it.
_LOGIN = Login(strength="mtls", methods=("pop",))


@dataclass(frozen=True, slots=True, kw_only=True)
class MtlsRule:
    """`trust_domain` empty: certificates are read by common name and organisation; else by SPIFFE id of that domain,
    whose path is `/<tenant>/<subject>`."""

    trust_domain: str = ""
    kind: CallerKind = CallerKind.SERVICE
    scopes: frozenset[str] = frozenset()


class MtlsCertificates:
    """Only for ports whose TLS requires and verifies a client certificate."""

    def __init__(self, rule: MtlsRule) -> None:
        self._rule = rule

    def evidence(self, auth_context: Mapping[str, Iterable[bytes]]) -> bytes | None:
        """The peer's certificate, PEM. None on a connection without one."""
        return next(iter(auth_context.get("x509_pem_cert", ())), None)

    def establish(self, certificate: bytes) -> Known:
        """Raises Unauthenticated."""
        read = x509.load_pem_x509_certificate(certificate)
        tenant, subject = self._spiffe(read) if self._rule.trust_domain else _by_name(read)
        caller = Caller(
            tenant=check_tenant(tenant),
            subject=check_subject(subject),
            kind=self._rule.kind,
            scopes=self._rule.scopes,
            login=_LOGIN,
            identity_source="mtls",
        )
        return Known(caller=caller, expire_time=read.not_valid_after_utc.timestamp())

    def _spiffe(self, certificate: x509.Certificate) -> tuple[str, str]:
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            raise Unauthenticated(problem="the certificate has no SPIFFE id") from None
        ids = [
            uri
            for uri in names.get_values_for_type(x509.UniformResourceIdentifier)
            if uri.startswith("spiffe://")
        ]
        if len(ids) != 1:
            raise Unauthenticated(problem="the certificate has not exactly one SPIFFE id")
        parts = urlsplit(ids[0])
        tenant, _, subject = unquote(parts.path).removeprefix("/").partition("/")
        if parts.netloc != self._rule.trust_domain:
            raise Unauthenticated(problem="a SPIFFE id of another trust domain")
        return tenant, subject


def _by_name(certificate: x509.Certificate) -> tuple[str, str]:
    organisations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(organisations) != 1 or len(names) != 1:
        raise Unauthenticated(problem="the certificate has not exactly one organisation and common name")
    return str(organisations[0].value), str(names[0].value)
