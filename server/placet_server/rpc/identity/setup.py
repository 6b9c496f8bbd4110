"""The sources of identity that the configuration names. Those that it does not name are not even imported."""

from __future__ import annotations

from collections.abc import Sequence

from placet_server.config import Config, ConfigRefused
from placet_server.rpc.identity.dev_token import DevLogin, DevTokens
from placet_server.rpc.identity.layer import Identity
from placet_server.rpc.identity.source import CertificateSource, TokenSource


async def open_identity(
    config: Config, logins: Sequence[DevLogin], bootstrap: TokenSource | None = None
) -> Identity:
    """Raises ConfigRefused if the issuer's keys cannot be read."""
    # First: it knows its own tokens, and a JWT source takes every token for its own.
    tokens: list[TokenSource] = [DevTokens(logins)] if logins else []
    tokens += [bootstrap] if bootstrap is not None else []
    if config.jwt_issuer:
        tokens.append(await _jwt_tokens(config))
    return Identity(tokens, _certificates(config) if config.identity_mtls else None)


async def _jwt_tokens(config: Config) -> TokenSource:
    from placet_server.rpc.identity.claim import ClaimMapping
    from placet_server.rpc.identity.jwks import KeySet, KeySetUnavailable, from_file, from_url
    from placet_server.rpc.identity.jwt import JwtRule, JwtTokens

    mapping = ClaimMapping(
        tenant=config.jwt_claim_tenant,
        tenant_fixed=config.jwt_tenant,
        subject=config.jwt_claim_subject,
        kind=config.jwt_claim_kind,
        kind_default=config.jwt_kind,
        roles=config.jwt_claim_roles,
        groups=config.jwt_claim_groups,
        scopes=config.jwt_claim_scopes,
        scopes_default=config.jwt_scopes,
        delegation=config.jwt_claim_delegation,
        login_strength=config.jwt_claim_login_strength,
        login_methods=config.jwt_claim_login_methods,
        login_time=config.jwt_claim_login_time,
        credential_handle=config.jwt_claim_credential,
        credential_issuer=config.jwt_claim_credential_issuer,
        credential_scopes=config.jwt_claim_credential_scopes,
    )
    rule = JwtRule(
        issuer=config.jwt_issuer,
        audience=config.jwt_audience,
        algorithms=config.jwt_algorithms,
        leeway_seconds=config.jwt_leeway_seconds,
        mapping=mapping,
    )
    file = config.jwt_jwks_file
    keys = KeySet(
        from_url(config.jwt_jwks_url) if file is None else from_file(file),
        refresh_seconds=config.jwt_refresh_seconds,
        refresh_seconds_min=config.jwt_refresh_seconds_min,
    )
    try:
        await keys.load()
    except KeySetUnavailable as error:
        raise ConfigRefused(f"the issuer's keys cannot be read: {error}") from error
    return JwtTokens(rule, keys)


def _certificates(config: Config) -> CertificateSource:
    from placet_server.rpc.identity.mtls import MtlsCertificates, MtlsRule

    rule = MtlsRule(
        trust_domain=config.mtls_trust_domain, kind=config.mtls_kind, scopes=frozenset(config.mtls_scopes)
    )
    return MtlsCertificates(rule)
