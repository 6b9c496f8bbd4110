"""What can be invoked, by whom: resolving on the hot path without the store, and admitting manifests under
one lock.

What was read is kept (`catalog_cache.py`). Another replica's admission is seen within `refresh_seconds`, and this one's
at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from placet_server.core.admission.builtin import stored
from placet_server.core.admission.catalog_cache import CatalogCache
from placet_server.core.admission.elsewhere import Elsewhere
from placet_server.core.admission.manifest import is_refused
from placet_server.core.admission.manifest_admit import Admission, AdmitResult, Note, admit_within, refusal
from placet_server.core.execution.handlers import HandlerTable
from placet_server.core.execution.program import Lack
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.errors import NotFound, StaleDigest
from placet_server.model.gate_errors import CapabilityNotFound, HandlerNotFound
from placet_server.model.manifest import LOCAL_TENANT, Handlers, Manifest, Problem
from placet_server.model.policy_schema import Offered
from placet_server.model.run_errors import AgentUnavailable
from placet_server.model.usage import Budget
from placet_server.store import catalog as rows
from placet_server.store.catalog import (
    ManifestRow,
    NamedVersion,
    OpenCounts,
    StoredCapability,
    StoredManifest,
)
from placet_server.store.clock import Clock, DatabaseClock
from placet_server.store.connection import Connection
from placet_server.store.pool import Pool

_FRESH_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A capability as listed. `served`: a handler of this process, or behind a connector that answers, serves it."""

    stored: StoredCapability
    served: bool


class Catalog:
    """One per process; belongs to its event loop."""

    def __init__(
        self,
        pool: Pool,
        *,
        handlers: HandlerTable,
        clock: Clock | None = None,
        refresh_seconds: float = 1.0,
        built_in: Iterable[Capability] = (),
        budget_max: Budget | None = None,
    ) -> None:
        """`budget_max`: no run of an agent spends more."""
        self._pool = pool
        self._built_in = stored(built_in)
        self._budget_max = budget_max or Budget()
        self._table = handlers
        self._handlers = handlers.claims()
        self._clock = clock or DatabaseClock()
        self._refresh_seconds = refresh_seconds
        self._cache = CatalogCache(pool, refresh_seconds)
        # What was resolved, and until when it needs no look at a revision: one look-up for most calls.
        self._fresh: dict[tuple[str, str, str | None], tuple[float, StoredCapability]] = {}
        # What the loaded app offers: during a rolling upgrade each process answers with its own current
        # versions.
        self._own_versions: dict[str, str] = {}
        self._elsewhere = Elsewhere(pool)

    @property
    def budget_max(self) -> Budget:
        """No run of an agent spends more."""
        return self._budget_max

    @property
    def built_in(self) -> list[Capability]:
        """What every server offers by itself."""
        return [found.capability for found in self._built_in.values()]

    async def resolve(
        self,
        tenant: str,
        name: str,
        version: str | None = None,
        *,
        anywhere: bool = False,
        even_withdrawn: bool = False,
    ) -> StoredCapability:
        """The version, or the current one. The server's own names come first and are never shadowed.

        Raises CapabilityNotFound, AgentUnavailable, HandlerNotFound (known, but neither a handler of this process nor a
        connector serves it; `anywhere`: nor any process that takes work from queues), StoreUnavailable.
        `even_withdrawn`: for what an action has done already."""
        asked = (tenant, name, version)
        fresh = self._fresh.get(asked)
        if fresh is not None and monotonic() < fresh[0]:
            return fresh[1]
        began = monotonic()
        found = await self.find(tenant, name, version, even_withdrawn=even_withdrawn)
        if found.capability.kind is CapabilityKind.AGENT:
            if problem := self._table.programs.problem(found.capability):
                spec = found.capability.agent
                raise AgentUnavailable(agent=name, problem=problem, model="" if spec is None else spec.model)
        elif (name, found.capability.version) not in self._handlers:
            if anywhere and await self._elsewhere.serves(name, found.capability.version):
                return found
            await self._route(found)
        if found.is_withdrawn:
            return found
        if len(self._fresh) >= _FRESH_MAX:
            self._fresh.clear()
        # Owners whose revision was read at different times: together no older than the interval.
        checked_at = min(began, *(self._cache.checked_at(owner, began) for owner in (LOCAL_TENANT, tenant)))
        self._fresh[asked] = (checked_at + self._refresh_seconds, found)
        return found

    async def find(
        self, tenant: str, name: str, version: str | None = None, *, even_withdrawn: bool = False
    ) -> StoredCapability:
        """The same, whether anything serves it or not. Raises CapabilityNotFound, StoreUnavailable."""
        if (built_in := self._built_in.get(name)) is not None:
            if version not in (None, built_in.capability.version):
                raise CapabilityNotFound(capability=name, version=version or "")
            return built_in
        own = version or self._own_versions.get(name)
        found = await self._cache.find(LOCAL_TENANT, name, own)
        if found is None and (own is None or await self._cache.find(LOCAL_TENANT, name, None) is None):
            found = await self._cache.find(tenant, name, version)
        if found is None or (found.is_withdrawn and not even_withdrawn):
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
            await self._table.connectors.learn(self._cache.checked_at(owner, monotonic()))
        if self._table.find(name, version, owner) is None:
            raise HandlerNotFound(capability=name, version=version)

    async def admit(
        self, caller: Caller, manifest: Manifest, *, validate_only: bool = False, expected_digest: str = ""
    ) -> AdmitResult:
        """Admit a manifest into the caller's tenant, whole or not at all.

        Raises ManifestRefused with every violation (never when `validate_only`, which changes nothing),
        StaleDigest, StoreUnavailable. Locks the revisions of '-' and of the tenant, in this order."""
        return await self._admit(
            Admission(
                owner=caller.tenant,
                manifest=manifest,
                admitted_by=caller.subject,
                validate_only=validate_only,
                replaces=expected_digest or None,
            )
        )

    async def look(self, tenant: str, manifest: Manifest, expected_digest: str) -> AdmitResult:
        """What admitting it would do. Changes nothing; raises as `admit` does."""
        looked = await self._admit(
            Admission(
                owner=tenant,
                manifest=manifest,
                admitted_by="",
                validate_only=True,
                replaces=expected_digest or None,
            )
        )
        if is_refused(looked.problems):
            raise refusal(manifest, looked.problems)
        return looked

    async def admit_looked_at(
        self, caller: Caller, manifest: Manifest, *, replaces: str, note: Note
    ) -> AdmitResult:
        """The same as `admit`, if what it replaces is what it was when somebody looked. `note` is stored with it."""
        return await self._admit(
            Admission(
                owner=caller.tenant,
                manifest=manifest,
                admitted_by=caller.subject,
                replaces=replaces,
                note=note,
            )
        )

    async def admit_local(self, manifest: Manifest) -> AdmitResult:
        """Admit what the loaded app offers to every tenant. Raises as `admit` does."""
        result = await self._admit(Admission(owner=LOCAL_TENANT, manifest=manifest, admitted_by="server"))
        self._own_versions |= {c.name: c.version for c in manifest.capabilities}
        self._fresh.clear()
        return result

    async def look_at_versions(self, tenant: str, name: str, version: str) -> list[NamedVersion]:
        """Those that a withdrawal of the version means, or, without one, of the name. Raises CapabilityNotFound."""
        async with self._pool.connection() as connection:
            known = await rows.list_named(connection, tenant, [name])
        found = [each for each in known if version in ("", each.version)]
        if not found:
            raise CapabilityNotFound(capability=name, version=version)
        return found

    async def count_open(self, tenant: str, name: str, versions: Sequence[str]) -> OpenCounts:
        """What has not ended of them."""
        async with self._pool.connection() as connection:
            return await rows.count_open(connection, tenant, name, versions)

    async def withdraw(
        self,
        caller: Caller,
        name: str,
        version: str,
        versions: Sequence[str],
        reason: str,
        note: Callable[[Connection], Awaitable[None]],
    ) -> None:
        """Takes these out of service, if they are what the version, or the name without one, has in service; `note` is
        stored with it. Raises StaleDigest, StoreUnavailable. Locks the tenant's revision.
        """
        owner, now = caller.tenant, self._clock.now()
        async with self._pool.tx(timeout_seconds=10.0) as connection:
            await rows.lock(connection, owner, now)
            there = in_service(await rows.list_named(connection, owner, [name]), version)
            if there != versions:
                raise StaleDigest(expected=", ".join(versions), actual=", ".join(there))
            await rows.withdraw(
                connection, owner, name, versions, withdrawn_by=caller.subject, reason=reason, now=now
            )
            await rows.raise_revision(connection, owner, now)
            await note(connection)
        await self._changed(owner, dials=False)

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
        if name in self._built_in:
            return CatalogEntry(stored=await self.find(tenant, name, version), served=True)
        async with self._pool.connection() as connection:
            is_own = bool(await rows.list_named(connection, LOCAL_TENANT, [name]))
            owner = LOCAL_TENANT if is_own else tenant
            found = await rows.get_capability(connection, owner, name, version)
        if found is None:
            raise CapabilityNotFound(capability=name, version=version or "")
        return self._entry(found, tenant)

    async def list_capabilities(
        self,
        tenant: str,
        *,
        page_size: int,
        name_prefix: str = "",
        after: tuple[str, str] = ("", ""),
        kind: CapabilityKind | None = None,
    ) -> list[CatalogEntry]:
        """At most `page_size` by name and version, after the given pair; fewer on the last page. `kind` None: all."""
        async with self._pool.connection() as connection:
            page = await rows.list_capabilities(connection, tenant, name_prefix, after, page_size, kind)
        page = self._with_built_in(page, name_prefix, after, kind)
        return [self._entry(found, tenant) for found in page[:page_size]]

    async def is_answered(self, found: StoredCapability) -> bool:
        """Whether a call of it has a handler to go to: here, behind a connector that answers, or at a server that takes
        work from queues. Raises StoreUnavailable.
        """
        name, version = found.capability.name, found.capability.version
        is_here = (name, version) in self._handlers or self._table.connectors.answers(
            found.tenant, name, version
        )
        return is_here or await self._elsewhere.serves(name, version)

    async def lacks(self, entry: CatalogEntry, tenant: str) -> Sequence[Lack]:
        """Of an agent in service: what this tenant's runs of it would lack now. Raises StoreUnavailable."""
        capability = entry.stored.capability
        if capability.kind is not CapabilityKind.AGENT or entry.stored.is_withdrawn:
            return ()
        return await self._table.programs.lacks(capability, tenant)

    def _with_built_in(
        self,
        page: list[StoredCapability],
        name_prefix: str,
        after: tuple[str, str],
        kind: CapabilityKind | None,
    ) -> list[StoredCapability]:
        """They are listed for who asks for them by the beginning of their names; what runs agents that are said with
        what they are asked, for everybody where agents can run.
        """
        asked = [
            found
            for name, found in self._built_in.items()
            if (name_prefix or self._runs_agents(found))
            and name.startswith(name_prefix)
            and _place(found) > after
            and kind in (None, found.capability.kind)
        ]
        return sorted([*page, *asked], key=_place) if asked else page

    def _runs_agents(self, built_in: StoredCapability) -> bool:
        return built_in.capability.kind is CapabilityKind.AGENT and self._table.programs.are_here

    def _entry(self, stored: StoredCapability, tenant: str) -> CatalogEntry:
        name, version = stored.capability.name, stored.capability.version
        if stored.capability.kind is CapabilityKind.AGENT:
            # Also where a connector has declared it: the server runs agents itself.
            missing = self._table.programs.missing(stored.capability, tenant)
            return CatalogEntry(stored=stored, served=not missing)
        served = (name, version) in self._handlers
        return CatalogEntry(
            stored=stored, served=served or self._table.connectors.answers(stored.tenant, name, version)
        )

    async def _admit(self, wanted: Admission) -> AdmitResult:
        handlers: Handlers | None = self._handlers
        told: tuple[Problem, ...] = ()
        if wanted.manifest.connector is not None:
            # Before anything is locked: the connector may take its time.
            handlers, told = await self._table.connectors.describe(wanted.owner, wanted.manifest)
        async with self._pool.tx(timeout_seconds=10.0) as connection:
            result = await admit_within(
                connection,
                wanted,
                handlers=handlers,
                told=told,
                now=self._clock.now(),
                budget_max=self._budget_max,
                trouble=self._table.programs.problem,
            )
        if not wanted.validate_only:
            await self._changed(wanted.owner, dials=wanted.manifest.connector is not None)
        return result

    async def _changed(self, owner: str, *, dials: bool) -> None:
        self._cache.forget(owner)
        self._fresh.clear()
        if dials:
            await self._table.connectors.learn(monotonic())


def in_service(known: Iterable[NamedVersion], version: str = "") -> list[str]:
    """Of versions of a name, sorted; `version`: only that one."""
    return sorted(each.version for each in known if not each.is_withdrawn and version in ("", each.version))


def _place(found: StoredCapability) -> tuple[str, str]:
    return found.capability.name, found.capability.version
