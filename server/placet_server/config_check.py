"""What is wrong with a configuration as a whole: rules between settings."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placet_server.config import Config

_WORD = "[a-z0-9][a-z0-9_.-]{0,63}"
_PERSON = re.compile(rf"{_WORD}(:{_WORD}(\+{_WORD}){{0,15}})?")


def problems_of(config: Config) -> list[str]:
    """In words for the operator: what is wrong, and what to set."""
    return [*_store_problems(config), *_identity_problems(config), *_transport_problems(config)]


def _store_problems(config: Config) -> list[str]:
    chosen = [
        name
        for name, is_set in (
            ("PLACET_DSN", bool(config.dsn)),
            ("PLACET_DATA_DIR", config.data_dir is not None),
            ("PLACET_EPHEMERAL", config.ephemeral),
        )
        if is_set
    ]
    if not chosen:
        return ["say where to keep actions: one of PLACET_DSN, PLACET_DATA_DIR, PLACET_EPHEMERAL=true"]
    return [f"actions are kept in one place: set only one of {', '.join(chosen)}"] if len(chosen) > 1 else []


def _identity_problems(config: Config) -> list[str]:
    problems = []
    if not (config.identity_dev or config.jwt_issuer or config.identity_mtls):
        problems.append(
            "nobody could be known here: set PLACET_JWT_ISSUER (with PLACET_JWT_AUDIENCE and PLACET_JWT_JWKS_URL "
            "or PLACET_JWT_JWKS_FILE), PLACET_IDENTITY_MTLS=true, or, on your own machine, PLACET_IDENTITY_DEV=true"
        )
    problems += _dev_problems(config)
    if config.bootstrap_token_file is not None and config.identity_dev:
        problems.append("PLACET_BOOTSTRAP_TOKEN_FILE is for production; identity_dev has every scope already")
    problems += _authority_problems(config)
    if config.jwt_issuer:
        problems += _jwt_problems(config)
    if config.identity_mtls and not (config.tls_certificate_file and config.tls_client_ca_file):
        problems.append(
            "PLACET_IDENTITY_MTLS needs PLACET_TLS_CERTIFICATE_FILE, _PRIVATE_KEY_FILE and _CLIENT_CA_FILE"
        )
    return problems


def _dev_problems(config: Config) -> list[str]:
    if not config.dev_people:
        return []
    if not config.identity_dev:
        return ["PLACET_DEV_PEOPLE needs PLACET_IDENTITY_DEV=true"]
    names = [config.dev_subject, *(person.partition(":")[0] for person in config.dev_people)]
    if len(set(names)) < len(names):
        return ["PLACET_DEV_PEOPLE names somebody twice, or the developer"]
    return [
        f"PLACET_DEV_PEOPLE: {person!r} is not name or name:role+role, of lower-case letters, digits, _ . and -"
        for person in config.dev_people
        if not _PERSON.fullmatch(person)
    ]


def _authority_problems(config: Config) -> list[str]:
    if config.authority_file and config.authority_url:
        return ["set one of PLACET_AUTHORITY_FILE and PLACET_AUTHORITY_URL"]
    if config.authority_url and not config.authority_url.startswith(("https://", "http://")):
        return ["PLACET_AUTHORITY_URL begins with https://, or http:// on an inner network"]
    if config.authority_token_file and not config.authority_url:
        return ["PLACET_AUTHORITY_TOKEN_FILE needs PLACET_AUTHORITY_URL"]
    return []


def _jwt_problems(config: Config) -> list[str]:
    problems = []
    if not config.jwt_audience:
        problems.append("PLACET_JWT_AUDIENCE is not set: tokens for other services would be accepted")
    if (config.jwt_jwks_file is None) == (not config.jwt_jwks_url):
        problems.append("set one of PLACET_JWT_JWKS_URL and PLACET_JWT_JWKS_FILE")
    if not config.jwt_algorithms or any(name.lower() == "none" for name in config.jwt_algorithms):
        problems.append("PLACET_JWT_ALGORITHMS must name signature algorithms, and never none")
    if not (config.jwt_tenant or config.jwt_claim_tenant):
        problems.append("set PLACET_JWT_TENANT or PLACET_JWT_CLAIM_TENANT")
    return problems


def _transport_problems(config: Config) -> list[str]:
    problems = []
    if (config.tls_certificate_file is None) != (config.tls_private_key_file is None):
        problems.append("PLACET_TLS_CERTIFICATE_FILE and PLACET_TLS_PRIVATE_KEY_FILE belong together")
    if config.tls_client_ca_file and not config.tls_certificate_file:
        problems.append("PLACET_TLS_CLIENT_CA_FILE needs PLACET_TLS_CERTIFICATE_FILE")
    if (config.connector_certificate_file is None) != (config.connector_private_key_file is None):
        problems.append("PLACET_CONNECTOR_CERTIFICATE_FILE and _PRIVATE_KEY_FILE belong together")
    if _is_loopback(config.host):
        return problems
    if config.insecure_bind:
        return problems
    if config.identity_dev:
        problems.append(
            f"PLACET_IDENTITY_DEV is for loopback, not for {config.host}; PLACET_INSECURE_BIND=true overrides"
        )
    if not config.tls_certificate_file:
        problems.append(
            f"{config.host} is not loopback: set the TLS files, or PLACET_INSECURE_BIND=true behind a mesh"
        )
    return problems


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
