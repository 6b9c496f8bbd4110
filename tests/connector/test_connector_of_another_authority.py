"""TLS of both sides: who has no certificate of the right authority hears nothing, and is told nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest
from cryptography.x509.oid import NameOID

from placet_server.connector.link import Link
from placet_server.connector.settings import ConnectorSettings
from placet_server.model.manifest import ConnectorAddress
from placet_server.outbound.address import HostRules
from tests.connector.rogue import PATIENT, Rogue
from tests.rpc.keys import Authority

OURS, THEIRS = Authority(), Authority()


@pytest.fixture
async def rogue() -> AsyncIterator[Rogue]:
    """Of our authority, as those must be who dial it."""
    rogue = Rogue()
    server = OURS.server()
    rogue.credentials = grpc.ssl_server_credentials(
        [(server.key, server.certificate)], OURS.certificate, require_client_auth=True
    )
    await rogue.start()
    yield rogue
    await rogue.die()


def shown(authority: Authority | None, trusted: Authority = OURS) -> ConnectorSettings:
    settings = replace(PATIENT, tls_ca=trusted.certificate)
    if authority is None:
        return settings
    client = authority.certify({NameOID.COMMON_NAME: "placet"})
    return replace(settings, certificate=client.certificate, private_key=client.key)


@pytest.mark.parametrize(
    ("settings", "name", "is_plaintext", "is_told"),
    [
        (shown(OURS), "localhost", False, True),
        (shown(THEIRS), "localhost", False, False),
        (shown(None), "localhost", False, False),
        (shown(OURS, trusted=THEIRS), "localhost", False, False),
        (shown(OURS), "elsewhere", False, False),
        (shown(OURS), "localhost", True, False),
    ],
    ids=["ours", "another_client", "no_client", "another_server", "another_name", "plaintext"],
)
async def test_only_ours_is_described(
    rogue: Rogue, settings: ConnectorSettings, name: str, is_plaintext: bool, is_told: bool
) -> None:
    address = ConnectorAddress(target=f"127.0.0.1:{rogue.port}", tls_server_name=name, plaintext=is_plaintext)
    link = Link(address, HostRules(settings.hosts), settings)
    try:
        described = await link.describe()
    finally:
        await link.close()
    assert is_told == (described is not None)
