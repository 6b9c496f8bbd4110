"""Admitting a manifest within a tx: looked at under the lock of its catalogue, and stored whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime

from placet_server.core.admission.manifest import Known, check_manifest, is_refused
from placet_server.core.admission.manifest_agent import Around, named_by
from placet_server.core.admission.manifest_weakening import weakenings
from placet_server.model.agent import DelegateChoice
from placet_server.model.capability import Capability, CapabilityKind
from placet_server.model.errors import FieldViolation, ManifestRefused, StaleDigest
from placet_server.model.manifest import LOCAL_TENANT, Handlers, Manifest, Problem
from placet_server.model.usage import Budget
from placet_server.store import catalog as rows
from placet_server.store.catalog import ChosenVersion, StoredManifest
from placet_server.store.connection import Connection

# Of those that agents of a manifest ask, and that these ask, and so on: a run bounds what was not seen here.
AGENTS_LOOKED_AT_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitResult:
    """`problems` are warnings only, unless nothing was to be changed.

    `changed`: False if it was there already. `replaces`: the digest of what was there, empty for nothing, and since
    when. `weakened`: those of the problems that take promises back. `added_hazards`: those that the capability of that
    name did not have. `restores`: it brings back what was withdrawn.
    """

    digest: str
    problems: tuple[Problem, ...]
    changed: bool
    replaces: str = ""
    replaces_time_us: int = 0
    weakened: tuple[Problem, ...] = ()
    added_hazards: tuple[str, ...] = ()
    restores: bool = False

    @property
    def is_there(self) -> bool:
        """Nothing would change."""
        return self.replaces == self.digest and not self.restores


Note = Callable[[Connection, AdmitResult], Awaitable[None]]
"""What is to be stored in the tx that admits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """`replaces`: the digest of what has to be there, empty for nothing; None: whatever is."""

    owner: str
    manifest: Manifest
    admitted_by: str
    validate_only: bool = False
    replaces: str | None = None
    note: Note | None = None


async def admit_within(
    connection: Connection,
    wanted: Admission,
    *,
    handlers: Handlers | None,
    told: tuple[Problem, ...],
    now: datetime | None,
    budget_max: Budget,
    trouble: Callable[[Capability], str],
) -> AdmitResult:
    """Raises ManifestRefused with every violation, unless it only looks, and StaleDigest. `budget_max`: no run of an
    agent spends more. `trouble`: why no run of one could begin here.

    Locks the revisions of '-' and of the owner, in this order.
    """
    owner, manifest = wanted.owner, wanted.manifest
    if not wanted.validate_only:
        await _lock(connection, owner, now)
    previous = await rows.get_manifest(connection, owner, manifest.name)
    known = await _known_before(connection, owner, manifest, previous)
    known = replace(known, around=await _around(connection, owner, manifest, budget_max, trouble))
    # Compiling megabytes of schemas must not hold up the calls of others.
    result = await asyncio.to_thread(_look, manifest, previous, known, handlers, told)
    _check_replaced(wanted, result)
    if wanted.validate_only:
        return result
    if is_refused(result.problems):
        raise refusal(manifest, result.problems)
    if not result.is_there:
        await rows.put_manifest(connection, owner, manifest, wanted.admitted_by, now)
        await rows.put_capabilities(connection, owner, manifest, wanted.admitted_by, now)
        await rows.raise_revision(connection, owner, now)
        result = replace(result, changed=True)
    if wanted.note is not None:
        await wanted.note(connection, result)
    return result


def refusal(manifest: Manifest, problems: tuple[Problem, ...]) -> ManifestRefused:
    errors = [problem for problem in problems if not problem.warning]
    return ManifestRefused(
        manifest=manifest.name,
        violations=tuple(
            FieldViolation(field=f"manifest.{error.path}", rule=error.code, description=error.message)
            for error in errors
        ),
    )


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
        withdrawn=frozenset((v.name, v.version) for v in versions if v.is_withdrawn),
    )


async def _around(
    connection: Connection,
    owner: str,
    manifest: Manifest,
    budget_max: Budget,
    trouble: Callable[[Capability], str],
) -> Around:
    names, stems = named_by(manifest)
    # The server's own agents run for tenants, who may have what they call.
    may_be_elsewhere = owner == LOCAL_TENANT
    if not names and not stems:
        return Around(may_be_elsewhere=may_be_elsewhere, budget_max=budget_max, trouble=trouble)
    chosen = await rows.list_chosen(connection, owner, names)
    asks = await _asks(connection, owner, chosen)
    return Around(
        kinds={(each.name, each.version): each.kind for each in chosen},
        # Of what this manifest had before, what it does not list any more has no current version from now on.
        current={
            each.name: each.version
            for each in chosen
            if each.current and (each.tenant, each.manifest) != (owner, manifest.name)
        },
        asks=asks,
        stems=frozenset(await rows.list_stems(connection, owner, stems)),
        may_be_elsewhere=may_be_elsewhere,
        budget_max=budget_max,
        trouble=trouble,
    )


async def _asks(
    connection: Connection, owner: str, chosen: list[ChosenVersion]
) -> dict[tuple[str, str], tuple[DelegateChoice, ...]]:
    """Whom the agents among them ask, and those whom these ask, and so on. Adds them to `chosen`."""
    asks: dict[tuple[str, str], tuple[DelegateChoice, ...]] = {}
    fresh = list(chosen)
    while fresh and len(asks) < AGENTS_LOOKED_AT_MAX:
        for each in fresh:
            if each.kind is CapabilityKind.AGENT:
                found = await rows.get_capability(connection, each.tenant, each.name, each.version)
                spec = None if found is None else found.capability.agent
                asks[each.name, each.version] = () if spec is None else spec.delegates
        wanted = {delegate.agent for delegates in asks.values() for delegate in delegates}
        wanted -= {each.name for each in chosen}
        fresh = await rows.list_chosen(connection, owner, sorted(wanted)) if wanted else []
        chosen += fresh
    return asks


def _look(
    manifest: Manifest,
    previous: StoredManifest | None,
    known: Known,
    handlers: Handlers | None,
    told: tuple[Problem, ...],
) -> AdmitResult:
    problems = (*told, *check_manifest(manifest, known=known, handlers=handlers))
    before = {} if previous is None else {c.name: c.contract.hazards for c in previous.manifest.capabilities}
    added = (c.contract.hazards - before.get(c.name, frozenset()) for c in manifest.capabilities)
    refused = is_refused(problems)
    return AdmitResult(
        digest="" if refused else manifest.digest(),
        problems=problems,
        changed=False,
        replaces="" if previous is None else previous.digest,
        replaces_time_us=0 if previous is None else previous.update_time_us,
        weakened=() if refused else tuple(weakenings(manifest, known.previous, known.withdrawn)),
        restores=any((c.name, c.version) in known.withdrawn for c in manifest.capabilities),
        added_hazards=tuple(sorted({hazard.value for hazards in added for hazard in hazards})),
    )


def _check_replaced(wanted: Admission, result: AdmitResult) -> None:
    """What is there already replaces nothing: whoever has not heard the answer may ask again."""
    if wanted.replaces not in (None, result.replaces) and not result.is_there:
        raise StaleDigest(expected=wanted.replaces or "", actual=result.replaces)
