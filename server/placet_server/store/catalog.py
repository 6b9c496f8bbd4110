"""The rows of the catalogue. Every function takes a connection and leaves the tx to its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from placet_server.model.action import Action
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.json_text import canonicalize, canonicalize_value
from placet_server.model.manifest import (
    MANIFEST_BYTES_MAX,
    ConnectorAddress,
    Manifest,
    address_of_text,
    document_text,
)
from placet_server.store import queries
from placet_server.store.action_record import read_action
from placet_server.store.connection import Connection

_SQL = queries.load("catalog")
CREATE_REVISION, LOCK_REVISION = _SQL["create_revision"], _SQL["lock_revision"]
SHARE_REVISION, RAISE_REVISION, GET_REVISION = (
    _SQL["share_revision"],
    _SQL["raise_revision"],
    _SQL["get_revision"],
)
GET_MANIFEST, PUT_MANIFEST, LIST_MANIFESTS = (
    _SQL["get_manifest"],
    _SQL["put_manifest"],
    _SQL["list_manifests"],
)
LIST_NAMED, CLEAR_CURRENT, PUT_CAPABILITIES = (
    _SQL["list_named"],
    _SQL["clear_current"],
    _SQL["put_capabilities"],
)
GET_CAPABILITY, GET_CURRENT_CAPABILITY = _SQL["get_capability"], _SQL["get_current_capability"]
LIST_CAPABILITIES, LIST_CHOSEN, LIST_STEMS = (
    _SQL["list_capabilities"],
    _SQL["list_chosen"],
    _SQL["list_stems"],
)
LIST_CONNECTORS, LIST_VERSIONS = _SQL["list_connectors"], _SQL["list_versions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRow:
    """A manifest without its document. `digest` is hex; `tenant` is the owner, '-' the server itself."""

    tenant: str
    name: str
    version: str
    digest: str
    capability_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredManifest:
    """A manifest as admitted. `digest` is hex."""

    tenant: str
    digest: str
    manifest: Manifest
    update_time_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCapability:
    """One version. `tenant` is the owner, '-' the server itself; `current`: invocations without a version get it."""

    tenant: str
    manifest: str
    capability: Capability
    contract_digest: str
    current: bool
    is_withdrawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedVersion:
    """Who owns a version of a name, and its contract digest in hex. `withdrawals`: how often it was withdrawn."""

    name: str
    version: str
    manifest: str
    contract_digest: str
    is_withdrawn: bool
    withdrawals: int


class ChosenVersion(NamedTuple):
    """A version in service, as one that calls by name finds it. `tenant` is the owner."""

    tenant: str
    manifest: str
    name: str
    version: str
    current: bool
    kind: CapabilityKind


class OpenCounts(NamedTuple):
    """Actions that have not ended: that wait for people, wait in line, run."""

    waiting: int
    queued: int
    running: int


class ConnectorRow(NamedTuple):
    """Where a manifest's capabilities run. `digest` is the manifest's, hex."""

    tenant: str
    manifest: str
    digest: str
    address: ConnectorAddress


async def lock(connection: Connection, tenant: str, now: datetime | None) -> None:
    """Take the tenant's catalogue for writing until the end of the tx. '-' comes before any other tenant."""
    await connection.execute(CREATE_REVISION.sql, *CREATE_REVISION.arguments(tenant=tenant, now=now))
    await connection.fetchval(LOCK_REVISION.sql, tenant)


async def share(connection: Connection, tenant: str, now: datetime | None) -> None:
    """Keep the tenant's catalogue from changing until the end of the tx."""
    await connection.execute(CREATE_REVISION.sql, *CREATE_REVISION.arguments(tenant=tenant, now=now))
    await connection.fetchval(SHARE_REVISION.sql, tenant)


async def raise_revision(connection: Connection, tenant: str, now: datetime | None) -> None:
    """The caller holds the lock."""
    await connection.execute(RAISE_REVISION.sql, *RAISE_REVISION.arguments(tenant=tenant, now=now))


async def get_revision(connection: Connection, tenant: str) -> int:
    """0 for a tenant that never admitted anything."""
    return await connection.fetchval(GET_REVISION.sql, tenant) or 0


async def get_manifest(connection: Connection, tenant: str, name: str) -> StoredManifest | None:
    row = await connection.fetchrow(GET_MANIFEST.sql, *GET_MANIFEST.arguments(tenant=tenant, name=name))
    if row is None:
        return None
    manifest = Manifest.from_text(row["document"])
    return StoredManifest(
        tenant=row["tenant"],
        digest=row["digest"].hex(),
        manifest=manifest,
        update_time_us=row["update_time_us"],
    )


async def put_manifest(
    connection: Connection, tenant: str, manifest: Manifest, admitted_by: str, now: datetime | None
) -> None:
    """The caller holds the lock."""
    arguments = PUT_MANIFEST.arguments(
        tenant=tenant,
        name=manifest.name,
        version=manifest.version,
        digest=bytes.fromhex(manifest.digest()),
        document=manifest.to_text(),
        capability_count=len(manifest.capabilities),
        connector=None if manifest.connector is None else document_text(manifest.connector),
        admitted_by=admitted_by,
        now=now,
    )
    await connection.execute(PUT_MANIFEST.sql, *arguments)


async def list_manifests(
    connection: Connection, tenant: str, after_name: str, count_max: int
) -> list[ManifestRow]:
    """By name, after the given one."""
    arguments = LIST_MANIFESTS.arguments(tenant=tenant, after_name=after_name, count_max=count_max)
    rows = await connection.fetch(LIST_MANIFESTS.sql, *arguments)
    return [ManifestRow(**{**dict(row), "digest": row["digest"].hex()}) for row in rows]


async def list_connectors(connection: Connection) -> list[ConnectorRow]:
    """Of every tenant."""
    rows = await connection.fetch(LIST_CONNECTORS.sql)
    return [
        ConnectorRow(row["tenant"], row["name"], row["digest"].hex(), address_of_text(row["connector"]))
        for row in rows
    ]


async def list_versions(connection: Connection, tenant: str, manifest: str) -> dict[tuple[str, str], str]:
    """Contract digest in hex by name and version."""
    rows = await connection.fetch(
        LIST_VERSIONS.sql, *LIST_VERSIONS.arguments(tenant=tenant, manifest=manifest)
    )
    return {(row["name"], row["version"]): row["contract_digest"].hex() for row in rows}


async def list_named(connection: Connection, tenant: str, names: Sequence[str]) -> list[NamedVersion]:
    rows = await connection.fetch(LIST_NAMED.sql, *LIST_NAMED.arguments(tenant=tenant, names=list(names)))
    return [NamedVersion(**{**dict(row), "contract_digest": row["contract_digest"].hex()}) for row in rows]


async def list_chosen(connection: Connection, tenant: str, names: Sequence[str]) -> list[ChosenVersion]:
    """In no order."""
    rows = await connection.fetch(LIST_CHOSEN.sql, *LIST_CHOSEN.arguments(tenant=tenant, names=list(names)))
    return [ChosenVersion(**{**dict(row), "kind": CapabilityKind(row["kind"])}) for row in rows]


async def list_stems(connection: Connection, tenant: str, stems: Sequence[str]) -> list[str]:
    """Those of the beginnings of names that there is something for."""
    rows = await connection.fetch(LIST_STEMS.sql, *LIST_STEMS.arguments(tenant=tenant, stems=list(stems)))
    return [row["stem"] for row in rows]


async def put_capabilities(
    connection: Connection, tenant: str, manifest: Manifest, admitted_by: str, now: datetime | None
) -> None:
    """Store every version of the manifest; of each name the last listed becomes current.

    The caller holds the lock and has checked that names are free and versions unchanged.
    """
    clear = CLEAR_CURRENT.arguments(tenant=tenant, manifest=manifest.name)
    await connection.execute(CLEAR_CURRENT.sql, *clear)
    last = {capability.name: capability.version for capability in manifest.capabilities}
    arguments = PUT_CAPABILITIES.arguments(
        tenant=tenant,
        manifest=manifest.name,
        admitted_by=admitted_by,
        now=now,
        names=[c.name for c in manifest.capabilities],
        versions=[c.version for c in manifest.capabilities],
        digests=[bytes.fromhex(c.contract_digest) for c in manifest.capabilities],
        documents=[
            canonicalize_value(c.to_document(), bytes_max=MANIFEST_BYTES_MAX).text
            for c in manifest.capabilities
        ],
        currents=[last[c.name] == c.version for c in manifest.capabilities],
    )
    await connection.execute(PUT_CAPABILITIES.sql, *arguments)


async def get_capability(
    connection: Connection, tenant: str, name: str, version: str | None
) -> StoredCapability | None:
    """One version; None: the current one."""
    if version is None:
        arguments = GET_CURRENT_CAPABILITY.arguments(tenant=tenant, name=name)
        row = await connection.fetchrow(GET_CURRENT_CAPABILITY.sql, *arguments)
    else:
        arguments = GET_CAPABILITY.arguments(tenant=tenant, name=name, version=version)
        row = await connection.fetchrow(GET_CAPABILITY.sql, *arguments)
    return None if row is None else _stored(dict(row))


async def list_capabilities(
    connection: Connection,
    tenant: str,
    name_prefix: str,
    after: tuple[str, str],
    count_max: int,
    kind: CapabilityKind | None = None,
) -> list[StoredCapability]:
    """By name and version, after the given pair. `kind` None: of all kinds."""
    arguments = LIST_CAPABILITIES.arguments(
        tenant=tenant,
        name_prefix=name_prefix,
        kind=None if kind is None else kind.value,
        after_name=after[0],
        after_version=after[1],
        count_max=count_max,
    )
    return [_stored(dict(row)) for row in await connection.fetch(LIST_CAPABILITIES.sql, *arguments)]


async def withdraw(
    connection: Connection,
    tenant: str,
    name: str,
    versions: Sequence[str],
    *,
    withdrawn_by: str,
    reason: str,
    now: datetime | None,
) -> None:
    """The caller holds the lock."""
    query = _SQL["withdraw"]
    arguments = query.arguments(
        tenant=tenant, name=name, versions=list(versions), withdrawn_by=withdrawn_by, reason=reason, now=now
    )
    await connection.execute(query.sql, *arguments)


async def count_open(connection: Connection, tenant: str, name: str, versions: Sequence[str]) -> OpenCounts:
    query = _SQL["count_open"]
    row = await connection.fetchrow(
        query.sql, *query.arguments(tenant=tenant, name=name, versions=list(versions))
    )
    assert row is not None
    return OpenCounts(**dict(row))


async def list_withdrawn(connection: Connection, count_max: int) -> list[Action]:
    """What is ready of what was withdrawn, whatever state it is in by now."""
    query = _SQL["list_withdrawn"]
    return [read_action(r) for r in await connection.fetch(query.sql, *query.arguments(count_max=count_max))]


async def list_for_policies(
    connection: Connection, tenant: str, *, after: tuple[str, str, str], count_max: int
) -> list[StoredCapability]:
    """By owner, name and version: what policies of a tenant can be about, and '-' is about everybody's."""
    query = _SQL["list_for_policies"]
    arguments = query.arguments(
        tenant=tenant, after_tenant=after[0], after_name=after[1], after_version=after[2], count_max=count_max
    )
    return [_stored(dict(row)) for row in await connection.fetch(query.sql, *arguments)]


def _stored(row: dict[str, object]) -> StoredCapability:
    document = canonicalize(str(row["document"]), bytes_max=MANIFEST_BYTES_MAX).value
    digest = row["contract_digest"]
    assert isinstance(digest, bytes)
    return StoredCapability(
        tenant=str(row["tenant"]),
        manifest=str(row["manifest"]),
        capability=Capability.from_document(document),
        contract_digest=digest.hex(),
        current=bool(row["current"]),
        is_withdrawn=bool(row["is_withdrawn"]),
    )
