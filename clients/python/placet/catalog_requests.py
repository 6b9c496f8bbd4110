"""Requests about the catalogue, from plain arguments. Pure."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from placet.connection import is_local
from placet.v1 import capability_pb2, catalog_service_pb2


@dataclass(frozen=True, slots=True)
class Connector:
    """Where Placet finds who serves a manifest: host:port. `tls_server_name`: the name in its certificate, if that is
    not the host. `plaintext` None: on loopback.
    """

    target: str
    _: KW_ONLY
    tls_server_name: str = ""
    plaintext: bool | None = None


KindWord = Literal["tool", "human", "agent"]


def list_request(
    prefix: str, kind: KindWord | None, page_size: int
) -> catalog_service_pb2.ListCapabilitiesRequest:
    """`kind` None: all. Raises ValueError for one that does not exist."""
    number = (
        capability_pb2.CAPABILITY_KIND_UNSPECIFIED
        if kind is None
        else capability_pb2.CapabilityKind.Value(f"CAPABILITY_KIND_{kind.upper()}")
    )
    return catalog_service_pb2.ListCapabilitiesRequest(name_prefix=prefix, kind=number, page_size=page_size)


def admit_request(
    subject: Any,
    *,
    connector: Connector | str | None,
    validate_only: bool,
    expected_digest: str,
    idempotency_key: str,
) -> catalog_service_pb2.AdmitManifestRequest:
    """`subject` is a manifest or has one (an App)."""
    manifest = capability_pb2.Manifest()
    manifest.CopyFrom(subject if isinstance(subject, capability_pb2.Manifest) else subject.manifest())
    if connector is not None:
        manifest.ClearField("local")
        manifest.connector.CopyFrom(_connector_address(connector))
    return catalog_service_pb2.AdmitManifestRequest(
        manifest=manifest,
        validate_only=validate_only,
        expected_digest=expected_digest,
        idempotency_key=idempotency_key,
    )


def _connector_address(connector: Connector | str) -> capability_pb2.ConnectorAddress:
    where = Connector(connector) if isinstance(connector, str) else connector
    plaintext = is_local(where.target) if where.plaintext is None else where.plaintext
    return capability_pb2.ConnectorAddress(
        target=where.target, tls_server_name=where.tls_server_name, plaintext=plaintext
    )
