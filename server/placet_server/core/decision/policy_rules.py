"""Policy sets ready to be asked. Everything here is in memory, and belongs to one event loop.

Who is asked. For a capability only those of its set's policies count whose action and resource could be its own: they
are put together once, parsed, beside the entities that never change. Policies that cannot match are never satisfied and
never fail, so leaving them out changes no decision.

What is remembered. A decision depends on the capability, the caller and the context. The context is never remembered:
if any policy that could apply to this caller reads it, the policies are asked each time. If one reads who the caller
is, a decision holds for that caller alone, else for all of the same kind, roles, groups, scopes and delegates.

The operator's set. Its forbids come before everything, its permits let nothing through by themselves: they only add
what they ask for. So no tenant can lose what the operator demands, or gain what it does not permit itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import cedarpy
import orjson
from cedarpy import pst

from placet_server.model.caller import Caller
from placet_server.model.capability import Capability
from placet_server.model.policy import (
    OPERATOR_PREFIX,
    OPERATOR_TENANT,
    Deciding,
    Overlay,
    PolicySet,
    PolicyVerdict,
)
from placet_server.model.policy_schema import (
    Entity,
    Offered,
    action_entities,
    action_uid,
    capability_entity,
    capability_uid,
    context_of,
    groups_of,
    principal_entity,
    principal_uid,
)
from placet_server.model.policy_text import Policy, parse_policies
from placet_server.model.policy_type import RecordOf, Unreadable, Wanted, input_type, projected

REMEMBERED_MAX = 4096
PRINCIPALS_MAX = 1024
SLICES_MAX = 4096
# How the engine names a policy in an error; the rest of what it says may hold parts of the input.
_PLACE = re.compile(r"`(policy\d+)`")


class Question(NamedTuple):
    """One call. `parent`: the capability that called it, empty for none."""

    caller: Caller
    offered: Offered
    input_value: Any
    labels: Mapping[str, str]
    parent: str = ""


class NotCompiled(Exception):
    """A set that this release cannot read: nothing may be allowed by it."""


class CompiledSet:
    """One policy set. `revision` 0: the built-in one."""

    def __init__(self, owner: str, revision: int, document: PolicySet) -> None:
        """Takes its time: not on the event loop. Raises NotCompiled."""
        parsed = parse_policies(document.cedar)
        if parsed.problems:
            raise NotCompiled(parsed.problems[0].message)
        self.owner = owner
        self.revision = revision
        self.document = document
        self.policies = parsed.policies
        self._slices: dict[_CapabilityKey, Slice] = {}

    async def slice_of(self, offered: Offered) -> Slice:
        """Of the policies that could apply to a capability."""
        key = capability_key(offered.capability)
        found = self._slices.get(key)
        if found is None:
            found = await asyncio.to_thread(self._slice, offered)
            if len(self._slices) >= SLICES_MAX:
                self._slices.clear()
            self._slices[key] = found
        return found

    def _slice(self, offered: Offered) -> Slice:
        name = offered.capability.name
        overlays = [overlay for overlay in self.document.overlays if overlay.covers(name)]
        policies = [policy for policy in self.policies if _could_concern(policy.node, name)]
        return Slice(self.owner, offered, policies, overlays)


class Decided(NamedTuple):
    """`is_lasting`: the context has no part in it. `is_personal`: who the caller is has one."""

    verdict: PolicyVerdict
    is_lasting: bool
    is_personal: bool


class Answer(NamedTuple):
    """Of one slice. `problem` empty: allowed."""

    problem: str
    policies: tuple[Policy, ...]


class Slice:
    """The policies of one set that could apply to one capability."""

    def __init__(
        self, owner: str, offered: Offered, policies: Sequence[Policy], overlays: Sequence[Overlay]
    ) -> None:
        name = offered.capability.name
        self.policies = policies
        self.overlays = overlays
        self.is_operators = owner == OPERATOR_TENANT
        self._input_type: RecordOf = input_type(offered.capability.input_schema_value)
        self._reads_context = any(policy.reads.context for policy in policies)
        self._wanted = _wanted(policies)
        self._request = {"action": action_uid(name), "resource": capability_uid(name)}
        # It gives policies their places as names.
        self._handle = cedarpy.PolicySet.from_str("\n".join(p.text for p in policies), release_gil=True)
        self._by_place = {f"policy{place}": policy for place, policy in enumerate(policies)}
        self._base = _entities([*action_entities(name), capability_entity(offered, overlays)])
        self._principals: dict[Caller, cedarpy.Entities] = {}

    def named(self, policy: Policy) -> Deciding:
        prefix = OPERATOR_PREFIX if self.is_operators else ""
        return Deciding(prefix + policy.name, policy.digest)

    def ask(self, question: Question) -> Answer:
        """Permit or not, and who says so. Whatever cannot be evaluated refuses."""
        if not self.policies:
            return Answer("not_permitted", ())
        context = "{}"
        if self._reads_context:
            try:
                members = projected(self._input_type, question.input_value, self._wanted)
            except Unreadable:
                return Answer("not_readable", ())
            depth = len(question.caller.delegation)
            context = orjson.dumps(context_of(members, question.labels, question.parent, depth)).decode()
        request = self._request | {"principal": principal_uid(question.caller), "context": context}
        result = cedarpy.is_authorized(request, self._handle, self._entities_of(question.caller))
        return self._read(result)

    def _read(self, result: cedarpy.AuthzResult) -> Answer:
        told = result.diagnostics
        if told.errors or result.decision is cedarpy.Decision.NoDecision:
            failed = {place for error in told.errors for place in _PLACE.findall(error)}
            return Answer("not_evaluated", self._named(failed))
        deciding = self._named(told.reasons)
        if result.allowed:
            return Answer("", deciding)
        return Answer("forbidden" if deciding else "not_permitted", deciding)

    def _named(self, places: Iterable[str]) -> tuple[Policy, ...]:
        """By name, so that another order decides nothing."""
        found = (self._by_place[place] for place in places if place in self._by_place)
        return tuple(sorted(found, key=lambda policy: policy.name))

    def _entities_of(self, caller: Caller) -> cedarpy.Entities:
        found = self._principals.get(caller)
        if found is None:
            if len(self._principals) >= PRINCIPALS_MAX:
                self._principals.clear()
            entity = orjson.dumps([principal_entity(caller)]).decode()
            found = self._principals[caller] = self._base.with_added_json_str(entity)
        return found


class Rulebook:
    """What is in force for one tenant: the operator's set, if there is one, and its own."""

    def __init__(self, operator: CompiledSet | None, own: CompiledSet) -> None:
        self.operator = operator
        self.own = own
        self.fresh_until = 0.0
        self._of_caller: dict[tuple[_CapabilityKey, Caller], PolicyVerdict] = {}
        self._of_kind: dict[tuple[_CapabilityKey, _CallerKey], PolicyVerdict] = {}

    @property
    def revisions(self) -> tuple[int, int]:
        """The operator's, 0 for none, and the own one, 0 for the built-in."""
        return 0 if self.operator is None else self.operator.revision, self.own.revision

    def known(self, capability: Capability, caller: Caller) -> PolicyVerdict | None:
        """The decision, if it is remembered and depends on nothing else."""
        return self._of_caller.get((capability_key(capability), caller))

    async def decide(self, question: Question) -> Decided:
        """What is remembered, or what the policies say now."""
        key = (capability_key(question.offered.capability), _caller_key(question.caller))
        remembered = self._of_kind.get(key)
        if remembered is not None:
            return Decided(remembered, True, False)
        sets = [self.own] if self.operator is None else [self.operator, self.own]
        slices = [await each.slice_of(question.offered) for each in sets]
        could = [
            p for each in slices for p in each.policies if _could_be_of(p.node.principal, question.caller)
        ]
        return Decided(
            verdict=_verdict(slices, question),
            is_lasting=not any(policy.reads.context for policy in could),
            is_personal=any(policy.reads.identity for policy in could),
        )

    def remember(self, question: Question, decided: Decided) -> None:
        """Unless the decision depends on the context."""
        if not decided.is_lasting:
            return
        key = capability_key(question.offered.capability)
        if len(self._of_caller) >= REMEMBERED_MAX:
            self._of_caller.clear()
        self._of_caller[key, question.caller] = decided.verdict
        if not decided.is_personal:
            if len(self._of_kind) >= REMEMBERED_MAX:
                self._of_kind.clear()
            self._of_kind[key, _caller_key(question.caller)] = decided.verdict


def _verdict(slices: Iterable[Slice], question: Question) -> PolicyVerdict:
    """The operator's slice comes first."""
    deciding: list[Deciding] = []
    for each in slices:
        answer = each.ask(question)
        if answer.problem and not (each.is_operators and answer.problem == "not_permitted"):
            named = tuple(each.named(policy) for policy in answer.policies)
            return PolicyVerdict(allowed=False, problem=answer.problem, policies=named)
        # A permit of the operator's decides nothing but what it asks for.
        counting = [p for p in answer.policies if p.approval or not each.is_operators]
        deciding += map(each.named, counting)
    return PolicyVerdict(allowed=True, policies=tuple(deciding))


_CapabilityKey = tuple[str, str, str]
_CallerKey = tuple[object, ...]


def capability_key(capability: Capability) -> _CapabilityKey:
    return capability.contract_digest, capability.name, capability.version


def _caller_key(caller: Caller) -> _CallerKey:
    """What callers share who get the same decision where none of them is named."""
    return caller.kind, caller.roles, caller.groups, caller.scopes, caller.delegation


def _wanted(policies: Sequence[Policy]) -> Wanted:
    wanted = Wanted()
    for policy in policies:
        wanted.merge(policy.reads.input)
    return wanted


def _entities(entities: Sequence[Entity]) -> cedarpy.Entities:
    return cedarpy.Entities.from_json_str(orjson.dumps(entities).decode())


def _could_concern(node: pst.Template, name: str) -> bool:
    """Its action and its resource, as far as the head of the policy says them."""
    actions = {name, *groups_of(name)}
    match node.action:
        case pst.ActionEq(entity=entity) if entity.id != name:
            return False
        case pst.ActionIn(entities=entities) if not any(entity.id in actions for entity in entities):
            return False
    match node.resource:
        case pst.ScopeEq(entity=pst.EntityUid() as entity) | pst.ScopeIn(entity=pst.EntityUid() as entity):
            return entity.id == name
    return True


def _could_be_of(constraint: pst.PrincipalOrResourceConstraint, caller: Caller) -> bool:
    """Whether the head of a policy leaves it open that it applies to a caller."""
    uid = principal_uid(caller)
    kind, own = uid["type"], (uid["type"], uid["id"])
    match constraint:
        case pst.ScopeEq(entity=pst.EntityUid() as entity):
            return (str(entity.type), entity.id) == own
        case pst.ScopeIs(entity_type=entity_type):
            return str(entity_type) == kind
        case pst.ScopeIn(entity=pst.EntityUid() as entity):
            return (str(entity.type), entity.id) in _circle(caller)
        case pst.ScopeIsIn(entity_type=entity_type, entity=pst.EntityUid() as entity):
            return str(entity_type) == kind and (str(entity.type), entity.id) in _circle(caller)
    return True


def _circle(caller: Caller) -> set[tuple[str, str]]:
    """The caller, and what he is in."""
    entity = principal_entity(caller)
    return {(uid["type"], uid["id"]) for uid in (entity["uid"], *entity["parents"])}
