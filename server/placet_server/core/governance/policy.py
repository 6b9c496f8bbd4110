"""Putting a policy set in force, and going back to an older one."""

from __future__ import annotations

from placet_server.core.admission.policy_set import AdmittedSet, PolicySets
from placet_server.core.governance.bootstrap import check_no_bootstrap, use_up
from placet_server.core.governance.governor import note
from placet_server.core.governance.use import Members, Proposal
from placet_server.model.action import Action
from placet_server.model.caller import EVERY_SCOPE, OPERATOR_SCOPE, Caller
from placet_server.model.document import DocumentRefused, read
from placet_server.model.errors import FieldViolation, MalformedRequest, ScopeMissing
from placet_server.model.policy import OPERATOR_TENANT, PolicySet
from placet_server.store.connection import Connection
from placet_server.store.policy import StoredPolicySet


class AdmitPolicySet:
    """In place of exactly what was in force when it was asked for."""

    scope = "policy.admit"
    asked = frozenset({"policy_set", "tenant", "expected_digest"})

    def __init__(self, sets: PolicySets) -> None:
        self._sets = sets

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        owner, document = _owner_of(caller, given), _set_of(given)
        await self._sets.check(owner, document, caller)
        newest = await self._sets.newest(owner, document, given.get("expected_digest", ""))
        return _proposal(document, newest)

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        owner, document = _owner_of(caller, members), _set_of(members)
        await self._sets.check(owner, document)
        return await _put(self._sets, caller, action, owner, document, members)


class RollBackPolicySet:
    """The document of an older revision, as a new one, in place of exactly what was in force when it was asked for."""

    scope = "policy.admit"
    asked = frozenset({"revision", "tenant", "expected_digest"})

    def __init__(self, sets: PolicySets) -> None:
        self._sets = sets

    async def propose(self, caller: Caller, given: Members) -> Proposal:
        check_no_bootstrap(caller)
        owner = _owner_of(caller, given)
        older = await self._sets.get(owner, given["revision"])
        newest = await self._sets.newest(owner, older.document, given.get("expected_digest", ""))
        return _proposal(older.document, newest)

    async def run(self, caller: Caller, action: Action, members: Members) -> Members:
        owner, revision = _owner_of(caller, members), members["revision"]
        older = await self._sets.get(owner, revision)
        return await _put(self._sets, caller, action, owner, older.document, members, revision)


def _proposal(document: PolicySet, newest: StoredPolicySet) -> Proposal:
    found = {
        "name": document.name,
        "digest": document.digest,
        "replaces": newest.digest,
        "first": newest.revision == 0,
    }
    return Proposal(found, basis=str(newest.revision))


async def _put(
    sets: PolicySets,
    caller: Caller,
    action: Action,
    owner: str,
    document: PolicySet,
    members: Members,
    restores: int | None = None,
) -> Members:
    async def noted(connection: Connection, admitted: AdmittedSet) -> None:
        await use_up(connection, caller, admitted.revision, sets.now())
        await note(connection, action, _admitted(admitted))

    replaces = members["replaces"]
    return _admitted(
        await sets.put(caller, owner, document, restores=restores, expected_digest=replaces, note=noted)
    )


def _admitted(admitted: AdmittedSet) -> Members:
    return {"revision": admitted.revision, "digest": admitted.digest, "changed": admitted.changed}


def _owner_of(caller: Caller, members: Members) -> str:
    """Whose set is meant. Raises ScopeMissing."""
    if not members.get("tenant"):
        return caller.tenant
    if OPERATOR_SCOPE not in caller.scopes and EVERY_SCOPE not in caller.scopes:
        raise ScopeMissing(scope=OPERATOR_SCOPE)
    return OPERATOR_TENANT


def _set_of(members: Members) -> PolicySet:
    """Raises MalformedRequest."""
    try:
        return read(PolicySet, members["policy_set"])
    except DocumentRefused as refused:
        field = f"input_json/policy_set/{refused.path}"
        raise MalformedRequest(
            violations=(FieldViolation(field=field, rule="document", description=refused.problem),)
        ) from refused
