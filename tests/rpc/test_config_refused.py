"""A server that nobody could use safely does not start, and says what to set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placet_server.config import Config, ConfigRefused, load_config
from placet_server.rpc.identity.setup import open_identity
from placet_server.rpc.transport import transport_of

JWT: dict[str, Any] = {"jwt_issuer": "i", "jwt_audience": "a", "jwt_jwks_url": "http://127.0.0.1:9/"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no store": ({"identity_dev": True}, "PLACET_DSN"),
    "two stores": (
        {"identity_dev": True, "ephemeral": True, "dsn": "postgresql:///x"},
        "only one of PLACET_DSN, PLACET_EPHEMERAL",
    ),
    "no identity": ({"ephemeral": True}, "PLACET_JWT_ISSUER"),
    "no audience": ({"ephemeral": True, **JWT, "jwt_audience": ""}, "PLACET_JWT_AUDIENCE"),
    "no keys": ({"ephemeral": True, **JWT, "jwt_jwks_url": ""}, "PLACET_JWT_JWKS_URL"),
    "two sources of keys": ({"ephemeral": True, **JWT, "jwt_jwks_file": "x"}, "PLACET_JWT_JWKS_FILE"),
    "algorithm none": ({"ephemeral": True, **JWT, "jwt_algorithms": "ES256,None"}, "PLACET_JWT_ALGORITHMS"),
    "no algorithm": ({"ephemeral": True, **JWT, "jwt_algorithms": ""}, "PLACET_JWT_ALGORITHMS"),
    "no tenant": ({"ephemeral": True, **JWT, "jwt_claim_tenant": ""}, "PLACET_JWT_TENANT"),
    "the server's tenant": ({"ephemeral": True, **JWT, "jwt_tenant": "-"}, "PLACET_JWT_TENANT"),
    "mTLS without files": ({"ephemeral": True, "identity_mtls": True}, "PLACET_IDENTITY_MTLS"),
    "certificate without key": (
        {"ephemeral": True, "identity_dev": True, "tls_certificate_file": "c"},
        "PLACET_TLS_PRIVATE_KEY_FILE",
    ),
    "plaintext to the world": ({"ephemeral": True, **JWT, "host": "0.0.0.0"}, "PLACET_INSECURE_BIND"),
    "port out of range": ({"ephemeral": True, "identity_dev": True, "port": 65536}, "PLACET_PORT"),
    "unknown field": ({"ephemeral": True, "identity_dev": True, "prot": 1}, "PLACET_PROT"),
    "share of nothing": ({"ephemeral": True, "identity_dev": True, "tenant_share": 0}, "PLACET_TENANT_SHARE"),
}


@pytest.mark.parametrize(("fields", "named"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_refused_by_the_name_of_its_variable(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigRefused, match=named):
        load_config(**fields)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PORT": "7", "EPHEMERAL": "true", "IDENTITY_DEV": "1", "APP": "a:b, c"}.items():
        monkeypatch.setenv(f"PLACET_{name}", value)
    config = load_config()
    assert (7, True, True, ("a:b", "c")) == (config.port, config.ephemeral, config.identity_dev, config.app)


def test_every_field_is_described() -> None:
    assert [] == [name for name, field in Config.model_fields.items() if not field.description]


def test_a_password_is_not_shown() -> None:
    config = load_config(dsn="postgresql://u:hunter2@h/d", identity_dev=True)
    assert "hunter2" not in repr(config) + str(config)


async def test_keys_that_cannot_be_read_stop_the_start() -> None:
    with pytest.raises(ConfigRefused, match="keys"):
        await open_identity(load_config(ephemeral=True, **JWT), [])


def test_a_missing_tls_file_is_told_by_name(tmp_path: Path) -> None:
    config = load_config(
        ephemeral=True,
        identity_dev=True,
        tls_certificate_file=tmp_path / "cert.pem",
        tls_private_key_file=tmp_path / "key.pem",
    )
    with pytest.raises(ConfigRefused, match=r"key\.pem"):
        transport_of(config)
