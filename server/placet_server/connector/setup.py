"""From a configuration and a store to connectors that can be dialled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from placet_server.config import Config, ConfigRefused
from placet_server.connector.routes import ConnectorRoutes
from placet_server.connector.settings import ConnectorSettings
from placet_server.connector.token import SigningKey, TokenSigner, new_private_key
from placet_server.store import signing_key
from placet_server.store.clock import Clock
from placet_server.store.pool import Pool


async def open_signer(config: Config, pool: Pool, clock: Clock) -> TokenSigner:
    """Raises ConfigRefused, StoreUnavailable."""
    if config.signing_key_file is not None:
        try:
            return TokenSigner([SigningKey(_read(config.signing_key_file))], config.name)
        except ValueError as error:
            raise ConfigRefused(f"PLACET_SIGNING_KEY_FILE: {error}") from error
    async with pool.tx() as connection:
        await signing_key.lock(connection)
        stored = await signing_key.list_keys(connection)
        if not stored:
            stored = [new_private_key()]
            await signing_key.put_key(connection, SigningKey(stored[0]).key_id, stored[0], clock.now())
    return TokenSigner([SigningKey(pem) for pem in stored], config.name)


def open_routes(
    config: Config, pool: Pool, signer: TokenSigner, ended: Callable[[str], None]
) -> ConnectorRoutes:
    """Raises ConfigRefused."""
    settings = ConnectorSettings(
        hosts=config.connector_hosts,
        is_insecure=config.connector_insecure,
        tls_ca=_read_if(config.connector_tls_ca_file),
        certificate=_read_if(config.connector_certificate_file),
        private_key=_read_if(config.connector_private_key_file),
        accept_seconds=config.connector_accept_seconds,
    )
    try:
        return ConnectorRoutes(pool, settings, signer, ended=ended)
    except ValueError as error:
        raise ConfigRefused(f"PLACET_CONNECTOR_HOSTS: {error}") from error


def _read_if(path: Path | None) -> bytes | None:
    return None if path is None else _read(path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigRefused(f"{path}: {error.strerror}") from error
