"""What can be invoked, by whom: resolving on the hot path without the store, and admitting manifests under
one lock.

What was read is kept per owner and thrown away whole when the owner's revision has moved. The revision is
read again after `refresh_seconds`, so that another replica's admission is seen within that time, and this
one's at once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from time import monotonic

from placet_server.core.admission.elsewhere import Elsewhere
from placet_server.core.admission.manifest import Known, check_manifest, is_refused
from placet_server.core.execution.handlers import HandlerTable
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.errors import (
    CapabilityNotFound,
    FieldViolation,
    HandlerNotFound,
    ManifestRefused,
    NotFound,
    StaleDigest,
)
from placet_server.model.manifest import LOCAL_TENANT, Handlers, Manifest, Problem
from placet_server.model.policy_schema import Offered
from placet_server.store import catalog as rows
from placet_server.store.catalog import ManifestRow, StoredCapability, StoredManifest
from placet_server.store.clock import Clock, DatabaseClock
from placet_server.store.pool import Pool
from placet_server.store.session import Connection

_OWNERS_MAX = 1024
_ENTRIES_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A capability as listed. `served`: a handler of this process, or behind a connector that answers, serves it."""

    stored: StoredCapability
    served: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitResult:
    """`problems` are warnings only, unless nothing was to be changed.

    `changed`: False if it was there already.
    """

    digest: str
    problems: tuple[Problem, ...]
    changed: bool


class _Known:
    """What was read of one owner's catalogue at one revision. Absence is remembered too."""

    __slots__ = ("checked_at", "entries", "revision")

    def __init__(self, revision: int, checked_at: float) -> None:
        self.revision = revision
        self.checked_at = checked_at
        self.entries: dict[tuple[str, str | None], StoredCapability | None] = {}


class Catalog:
    """One per process; belongs to its event loop."""

    def __init__(
        self,
        pool: Pool,
        *,
        handlers: HandlerTable,
        clock: Clock | None = None,
        refresh_seconds: float = 1.0,
    ) -> None:
        self._pool = pool
        self._table = handlers
        self._handlers = handlers.claims()
        self._clock = clock or DatabaseClock()
        self._refresh_seconds = refresh_seconds
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._refreshing: dict[str, asyncio.Lock] = {}
        # What was resolved, and until when it needs no look at a revision: one look-up for most calls.
        self._fresh: dict[tuple[str, str, str | None], tuple[float, StoredCapability]] = {}
        # What the loaded app offers: during a rolling upgrade each process answers with its own current
        # versions.
        self._own_versions: dict[str, str] = {}
        self._elsewhere = Elsewhere(pool)

    async def resolve(
        self, tenant: str, name: str, version: str | None = None, *, anywhere: bool = False
    ) -> StoredCapability:
        """The version, or the current one. The server's own names come first and are never shadowed.

        Raises CapabilityNotFound, HandlerNotFound (known, but neither a handler of this process nor a connector serves
        it; `anywhere`: nor any process that takes work from queues), StoreUnavailable."""
        asked = (tenant, name, version)
        fresh = self._fresh.get(asked)
        if fresh is not None and monotonic() < fresh[0]:
            return fresh[1]
        began = monotonic()
        found = await self.find(tenant, name, version)
        if (name, found.capability.version) not in self._handlers:
            if anywhere and await self._elsewhere.serves(name, found.capability.version):
                return found
            await self._route(found)
        if len(self._fresh) >= _ENTRIES_MAX:
            self._fresh.clear()
        # Owners whose revision was read at different times: together no older than the interval.
        checked_at = min(
            [began, *(self._known[o].checked_at for o in (LOCAL_TENANT, tenant) if o in self._known)]
        )
        self._fresh[asked] = (checked_at + self._refresh_seconds, found)
        return found

    async def find(self, tenant: str, name: str, version: str | None = None) -> StoredCapability:
        """The same, whether anything serves it or not. Raises CapabilityNotFound, StoreUnavailable."""
        own = version or self._own_versions.get(name)
        found = await self._find(LOCAL_TENANT, name, own)
        if found is None and (own is None or await self._find(LOCAL_TENANT, name, None) is None):
            found = await self._find(tenant, name, version)
        if found is None:
            raise CapabilityNotFound(capability=name, version=version or "")
        return found

    async def offered(self, action: Action) -> Offered:
        """What an action is pinned to, as policies see it. Raises CapabilityNotFound, StoreUnavailable."""
        found = await self.find(action.requester.tenant, action.capability, action.version)
        return Offered(capability=found.capability, manifest=found.manifest)

    async def _route(self, found: StoredCapability) -> None:
        """Raises HandlerNotFound unless a connector is known for it, as surely as the catalogue is."""
        owner, name, version = found.tenant, found.capability.name, found.capability.version
        if owner != LOCAL_TENANT and self._table.find(name, version, owner) is None:
            known = self._known.get(owner)
            await self._table.connectors.learn(monotonic() if known is None else known.checked_at)
        if self._table.find(name, version, owner) is None:
            raise HandlerNotFound(capability=name, version=version)

    async def admit(
        self, caller: Caller, manifest: Manifest, *, validate_only: bool = False, expected_digest: str = ""
    ) -> AdmitResult:
        """Admit a manifest into the caller's tenant, whole or not at all.

        Raises ManifestRefused with every violation (never when `validate_only`, which changes nothing),
        StaleDigest, StoreUnavailable. Locks the revisions of '-' and of the tenant, in this order."""
        return await self._admit(caller.tenant, manifest, caller.subject, validate_only, expected_digest)

    async def admit_local(self, manifest: Manifest) -> AdmitResult:
        """Admit what the loaded app offers to every tenant. Raises as `admit` does."""
        result = await self._admit(LOCAL_TENANT, manifest, "server", False, "")
        self._own_versions |= {c.name: c.version for c in manifest.capabilities}
        self._fresh.clear()
        return result

    async def get_manifest(self, tenant: str, name: str) -> StoredManifest:
        """The server's own of that name, else the tenant's. Raises NotFound."""
        async with self._pool.connection() as connection:
            for owner in (LOCAL_TENANT, tenant):
                if found := await rows.get_manifest(connection, owner, name):
                    return found
        raise NotFound(kind="manifest", name=name)

    async def list_manifests(self, tenant: str, *, page_size: int, after_name: str = "") -> list[ManifestRow]:
        """At most `page_size` by name; fewer on the last page."""
        async with self._pool.connection() as connection:
            return await rows.list_manifests(connection, tenant, after_name, page_size)

    async def get_capability(self, tenant: str, name: str, version: str | None = None) -> CatalogEntry:
        """The server's own of that name, else the tenant's. Raises CapabilityNotFound."""
        async with self._pool.connection() as connection:
            if await rows.list_named(connection, LOCAL_TENANT, [name]):
                tenant = LOCAL_TENANT
            found = await rows.get_capability(connection, tenant, name, version)
        if found is None:
            raise CapabilityNotFound(capability=name, version=version or "")
        return self._entry(found)

    async def list_capabilities(
        self, tenant: str, *, page_size: int, name_prefix: str = "", after: tuple[str, str] = ("", "")
    ) -> list[CatalogEntry]:
        """At most `page_size` by name and version, after the given pair; fewer on the last page."""
        async with self._pool.connection() as connection:
            page = await rows.list_capabilities(connection, tenant, name_prefix, after, page_size)
        return [self._entry(stored) for stored in page]

    def _entry(self, stored: StoredCapability) -> CatalogEntry:
        name, version = stored.capability.name, stored.capability.version
        served = (name, version) in self._handlers
        return CatalogEntry(
            stored=stored, served=served or self._table.connectors.answers(stored.tenant, name, version)
        )

    async def _find(self, owner: str, name: str, version: str | None) -> StoredCapability | None:
        known = self._known.get(owner)
        if known is None or monotonic() - known.checked_at > self._refresh_seconds:
            known = await self._refreshed(owner)
        try:
            return known.entries[name, version]
        except KeyError:
            return await self._read(known, owner, name, version)

    async def _refreshed(self, owner: str) -> _Known:
        """The owner's entries if the revision has not moved, else none yet.

        One reader per owner at a time.
        """
        async with self._refreshing.setdefault(owner, asyncio.Lock()):
            known = self._known.get(owner)
            started = monotonic()
            if known is not None and started - known.checked_at <= self._refresh_seconds:
                return known
            async with self._pool.connection() as connection:
                revision = await rows.get_revision(connection, owner)
            if known is None or known.revision != revision or self._known.get(owner) is not known:
                known = self._known[owner] = _Known(revision, started)
            known.checked_at = started
            self._known.move_to_end(owner)
            while len(self._known) > _OWNERS_MAX:
                forgotten, _ = self._known.popitem(last=False)
                self._refreshing.pop(forgotten, None)
            return known

    async def _read(
        self, known: _Known, owner: str, name: str, version: str | None
    ) -> StoredCapability | None:
        """Read one entry into what the revision was checked for: newer rows may enter, older ones never."""
        async with self._pool.connection() as connection:
            stored = await rows.get_capability(connection, owner, name, version)
        if len(known.entries) >= _ENTRIES_MAX:
            known.entries.clear()
        known.entries[name, version] = stored
        return stored

    async def _admit(
        self, owner: str, manifest: Manifest, admitted_by: str, validate_only: bool, expected_digest: str
    ) -> AdmitResult:
        now = self._clock.now()
        handlers: Handlers | None = self._handlers
        told: tuple[Problem, ...] = ()
        if manifest.connector is not None:
            # Before anything is locked: the connector may take its time.
            handlers, told = await self._table.connectors.describe(owner, manifest)
        async with self._pool.tx(timeout_seconds=10.0) as connection:
            if not validate_only:
                await _lock(connection, owner, now)
            previous = await rows.get_manifest(connection, owner, manifest.name)
            _check_expected(expected_digest, previous)
            known = await _known_before(connection, owner, manifest, previous)
            # Compiling megabytes of schemas must not hold up the calls of others.
            checked = await asyncio.to_thread(check_manifest, manifest, known=known, handlers=handlers)
            problems = (*told, *checked)
            refused = is_refused(problems)
            digest = "" if refused else manifest.digest()
            if validate_only:
                return AdmitResult(digest=digest, problems=problems, changed=False)
            if refused:
                raise _refusal(manifest, problems)
            changed = previous is None or previous.digest != digest
            if changed:
                await rows.put_manifest(connection, owner, manifest, admitted_by, now)
                await rows.put_capabilities(connection, owner, manifest, admitted_by, now)
                await rows.raise_revision(connection, owner, now)
        self._known.pop(owner, None)
        self._fresh.clear()
        if manifest.connector is not None:
            await self._table.connectors.learn(monotonic())
        return AdmitResult(digest=digest, problems=problems, changed=changed)


async def _lock(connection: Connection, owner: str, now: datetime | None) -> None:
    # The server's names must not change while a tenant's are checked against them.
    if owner != LOCAL_TENANT:
        await rows.share(connection, LOCAL_TENANT, now)
    await rows.lock(connection, owner, now)


async def _known_before(
    connection: Connection, owner: str, manifest: Manifest, previous: StoredManifest | None
) -> Known:
    names = sorted({capability.name for capability in manifest.capabilities})
    versions = await rows.list_named(connection, owner, names)
    owners = {v.name: f"manifest {v.manifest!r}" for v in versions if v.manifest != manifest.name}
    if owner != LOCAL_TENANT:
        for local in await rows.list_named(connection, LOCAL_TENANT, names):
            owners[local.name] = f"the server's own manifest {local.manifest!r}"
    return Known(
        previous=previous.manifest if previous else None,
        digests={(v.name, v.version): v.contract_digest for v in versions},
        owners=owners,
    )


def _check_expected(expected_digest: str, previous: StoredManifest | None) -> None:
    actual = previous.digest if previous else ""
    if expected_digest and expected_digest != actual:
        raise StaleDigest(expected=expected_digest, actual=actual)


def _refusal(manifest: Manifest, problems: tuple[Problem, ...]) -> ManifestRefused:
    errors = [problem for problem in problems if not problem.warning]
    return ManifestRefused(
        manifest=manifest.name,
        violations=tuple(
            FieldViolation(field=f"manifest.{error.path}", rule=error.code, description=error.message)
            for error in errors
        ),
    )
