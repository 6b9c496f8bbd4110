"""Admitting a manifest, and taking capabilities out of service."""

from __future__ import annotations

from typing import Any

from placet_server.core.admission.catalog import Catalog, in_service
from placet_server.core.admission.manifest_admit import AdmitResult
from placet_server.core.governance.governor import note
from placet_server.core.governance.use import Members, Proposal
from placet_server.model.action import Action
from placet_server.model.caller import Caller
from placet_server.model.document import DocumentRefused, written
from placet_server.model.errors import FieldViolation, MalformedRequest, StaleDigest
from placet_server.model.manifest import Manifest, Problem
from placet_server.store.connection import Connection

# What people are shown of weakenings; the number counts all.
SHOWN_MAX = 32


class AdmitManifest:
    """Whole or not at all, in place of exactly what was there when it was asked for."""

    scope = "catalog.admit"
    asked = frozenset({"manifest", "expected_digest"})

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        manifest = _manifest_of(given)
        looked = await self._catalog.look(caller.tenant, manifest, given.get("expected_digest", ""))
        return Proposal(_shown(manifest, looked), basis=str(looked.replaces_time_us))

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        manifest = _manifest_of(members)

        async def noted(connection: Connection, result: AdmitResult) -> None:
            if result.changed:
                _check_shown(members, _shown(manifest, result))
            await note(connection, action, _admitted(result))

        return _admitted(
            await self._catalog.admit_looked_at(caller, manifest, replaces=members["replaces"], note=noted)
        )


class WithdrawCapability:
    """New invocations do not find it; what waits or stands in line for it is refused when its turn comes."""

    scope = "catalog.admit"
    asked = frozenset({"name", "version", "reason"})

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        known = await self._catalog.look_at_versions(caller.tenant, given["name"], given.get("version", ""))
        basis = ",".join(f"{each.version}:{each.withdrawals}" for each in known)
        return Proposal({"versions": in_service(known)}, basis)

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        name, version, versions = members["name"], members.get("version", ""), members["versions"]
        counts = await self._catalog.count_open(caller.tenant, name, versions)
        output: Members = {"versions": versions, "open": counts._asdict()}

        async def noted(connection: Connection) -> None:
            await note(connection, action, output)

        await self._catalog.withdraw(caller, name, version, versions, members.get("reason", ""), noted)
        return output


async def look_at_withdrawal(catalog: Catalog, caller: Caller, name: str, version: str) -> Members:
    """What it would take out of service, and which actions that concerns. Raises CapabilityNotFound."""
    versions = in_service(await catalog.look_at_versions(caller.tenant, name, version))
    counts = await catalog.count_open(caller.tenant, name, versions)
    return {"versions": versions, "open": counts._asdict()}


def problems_of(output: Members) -> list[Problem]:
    """Of an admission's output."""
    return [Problem(**each) for each in output["problems"]]


def _shown(manifest: Manifest, looked: AdmitResult) -> Members:
    """What it means to admit it, for policies and people."""
    return {
        "name": manifest.name,
        "digest": looked.digest,
        "replaces": looked.replaces,
        "first": looked.replaces == "",
        "weakenings": len(looked.weakened),
        "weakened": [f"{each.path}: {each.message}" for each in looked.weakened[:SHOWN_MAX]],
        "adds_hazards": list(looked.added_hazards),
        "restores": looked.restores,
    }


def _check_shown(shown: Members, found: Members) -> None:
    """It may mean more by now, though it replaces the same: what was withdrawn meanwhile would be back. Raises
    StaleDigest.
    """
    for name, value in found.items():
        if shown[name] != value:
            raise StaleDigest(expected=f"{name}: {shown[name]}"[:512], actual=f"{name}: {value}"[:512])


def _admitted(result: AdmitResult) -> Members:
    problems: list[Any] = [written(problem) for problem in result.problems]
    return {"digest": result.digest, "changed": result.changed, "problems": problems}


def _manifest_of(members: Members) -> Manifest:
    """Raises MalformedRequest."""
    try:
        return Manifest.from_document(members["manifest"])
    except DocumentRefused as refused:
        field = f"input_json/manifest/{refused.path}"
        raise MalformedRequest(
            violations=(FieldViolation(field=field, rule="document", description=refused.problem),)
        ) from refused
