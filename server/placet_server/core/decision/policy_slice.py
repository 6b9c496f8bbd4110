"""The policies of one set about one capability, ready to be asked.

Only those of a set's policies count whose action and resource could be the capability's own: those that cannot match
are never satisfied and never fail, so leaving them out changes no decision. They are put together once, parsed, beside
the entities that never change.

What is remembered. Policies that do not read the context say the same whenever the same caller calls, and, where none
of the slice's policies looks at who the caller is, whenever anybody of the same tenant, kind, roles, groups, scopes and
delegates does: they are asked once. Those that read the context are asked each time, and nobody remembers what they
said; where all of them only compare plain values, without the engine (`model/policy_plain.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cedarpy
import orjson

from placet_server.core.decision.policy_head import concerns, could_be_of, could_concern
from placet_server.model.caller import Caller
from placet_server.model.policy import OPERATOR_PREFIX, OPERATOR_TENANT, Deciding, Overlay
from placet_server.model.policy_plain import Condition, Facts, NotPlain, Unsure, condition_of
from placet_server.model.policy_schema import (
    Entity,
    Offered,
    action_entities,
    action_uid,
    capability_entity,
    capability_uid,
    context_of,
    principal_entity,
    principal_uid,
)
from placet_server.model.policy_text import Policy
from placet_server.model.policy_type import RecordOf, Unreadable, Wanted, input_type, projected

CALLERS_MAX = 1024
NOT_PERMITTED = "not_permitted"
# How the engine names a policy in an error; the rest of what it says may hold parts of the input.
_PLACE = re.compile(r"`(policy\d+)`")
_NO_CONTEXT = "{}"


class Question(NamedTuple):
    """One call. `parent`: the capability that called it, empty for none."""

    caller: Caller
    offered: Offered
    input_value: Any
    labels: Mapping[str, str]
    parent: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """`problem` empty: permitted. `policies`: those that say so, by name. The same answer is the same object, so that
    what is made of it is made once.
    """

    problem: str
    policies: tuple[Policy, ...] = ()


SILENCE = Answer(NOT_PERMITTED)
UNREADABLE = Answer("not_readable")


class _Plain(NamedTuple):
    """A policy that can be asked without the engine."""

    place: str
    policy: Policy
    holds: Condition


class _Known(NamedTuple):
    """Of one caller. `answer`: what holds whatever the context is; `is_final`: the context changes nothing about it.
    `plain`: what reads the context and is about this caller, if all of it is plain."""

    answer: Answer
    is_final: bool
    request: dict[str, Any]
    entities: cedarpy.Entities
    attributes: dict[str, Any]
    plain: tuple[_Plain, ...] | None


class _Part:
    """Policies that are asked together."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.policies = tuple(policies)
        # It gives policies their places as names.
        self._handle = cedarpy.PolicySet.from_str("\n".join(p.text for p in policies), release_gil=True)
        self._by_place = {f"policy{place}": policy for place, policy in enumerate(policies)}
        self._answers: dict[tuple[str, frozenset[str]], Answer] = {}

    def ask(self, request: dict[str, Any], entities: cedarpy.Entities) -> Answer:
        """Whatever cannot be evaluated refuses."""
        if not self.policies:
            return SILENCE
        result = cedarpy.is_authorized(request, self._handle, entities)
        told = result.diagnostics
        if told.errors or result.decision is cedarpy.Decision.NoDecision:
            failed = {place for error in told.errors for place in _PLACE.findall(error)}
            return self._answer("not_evaluated", failed)
        if result.allowed:
            return self._answer("", told.reasons)
        return self._answer("forbidden", told.reasons) if told.reasons else SILENCE

    def plain(self, name: str) -> tuple[_Plain, ...] | None:
        """All of them about this capability without the engine; None if one needs it."""
        found = []
        for place, policy in self._by_place.items():
            try:
                holds = condition_of(policy.node)
            except NotPlain:
                return None
            if not concerns(policy.node, name):
                return None
            found.append(_Plain(place, policy, holds))
        return tuple(found)

    def ask_plain(self, plain: Iterable[_Plain], facts: Facts) -> Answer:
        """What `ask` would say. Raises Unsure."""
        holding = [each for each in plain if each.holds(facts)]
        if not holding:
            return SILENCE
        forbids = [each.place for each in holding if each.policy.node.effect == "forbid"]
        if forbids:
            return self._answer("forbidden", forbids)
        return self._answer("", [each.place for each in holding])

    def _answer(self, problem: str, places: Iterable[str]) -> Answer:
        key = problem, frozenset(places)
        found = self._answers.get(key)
        if found is None:
            named = _sorted(self._by_place[place] for place in key[1] if place in self._by_place)
            found = Answer(problem, named)
            _put(self._answers, key, found)
        return found


class Slice:
    """Belongs to one event loop, but may be made beside it."""

    def __init__(
        self, owner: str, offered: Offered, policies: Sequence[Policy], overlays: Sequence[Overlay]
    ) -> None:
        name = offered.capability.name
        self.overlays = tuple(overlays)
        self.is_operators = owner == OPERATOR_TENANT
        mine = [policy for policy in policies if could_concern(policy.node, name)]
        self._is_personal = any(policy.reads.identity for policy in mine)
        self._lasting = _Part([policy for policy in mine if not policy.reads.context])
        self._passing = _Part([policy for policy in mine if policy.reads.context])
        self._wanted = _wanted(self._passing.policies)
        self._members = frozenset[str]().union(*(policy.reads.members for policy in self._passing.policies))
        self._input_type: RecordOf = input_type(offered.capability.input_schema_value)
        self._request = {"action": action_uid(name), "resource": capability_uid(name)}
        resource = capability_entity(offered, overlays)
        self._base = _entities([*action_entities(name), resource])
        self._resource: dict[str, Any] = resource["attrs"]
        self._plain = self._passing.plain(name)
        self._by_caller: dict[Caller, _Known] = {}
        self._by_kind: dict[tuple[object, ...], tuple[Answer, bool]] = {}
        self._together: dict[tuple[Answer, Answer], Answer] = {}

    def named(self, policy: Policy) -> Deciding:
        prefix = OPERATOR_PREFIX if self.is_operators else ""
        return Deciding(prefix + policy.name, policy.digest)

    def ask(self, question: Question) -> tuple[Answer, bool]:
        """Permit or not, and who says so; and whether it holds for this caller whatever the context is."""
        caller = question.caller
        known = self._by_caller.get(caller) or self._look(caller)
        if known.is_final:
            return known.answer, True
        try:
            members = projected(self._input_type, question.input_value, self._wanted)
        except Unreadable:
            return UNREADABLE, False
        context = context_of(
            self._members,
            input_members=members,
            labels=question.labels,
            parent=question.parent,
            delegation_depth=len(caller.delegation),
        )
        passing = self._ask_passing(known, context)
        both = known.answer, passing
        found = self._together.get(both)
        if found is None:
            found = _both(*both)
            _put(self._together, both, found)
        return found, False

    def _ask_passing(self, known: _Known, context: dict[str, Any]) -> Answer:
        if known.plain is not None:
            try:
                return self._passing.ask_plain(known.plain, Facts(known.attributes, self._resource, context))
            except Unsure:
                pass
        request = known.request | {"context": orjson.dumps(context).decode()}
        return self._passing.ask(request, known.entities)

    def _look(self, caller: Caller) -> _Known:
        entity = principal_entity(caller)
        entities = self._base.with_added_json_str(orjson.dumps([entity]).decode())
        request = self._request | {"principal": principal_uid(caller), "context": _NO_CONTEXT}
        # The operator's slices are every tenant's.
        kind = (
            caller.tenant,
            caller.kind,
            caller.roles,
            caller.groups,
            caller.scopes,
            caller.delegation,
        )
        said = None if self._is_personal else self._by_kind.get(kind)
        if said is None:
            answer = self._lasting.ask(request, entities)
            is_refusal = answer.problem not in ("", NOT_PERMITTED)
            may_pass = any(could_be_of(policy.node.principal, caller) for policy in self._passing.policies)
            said = answer, is_refusal or not may_pass
            _put(self._by_kind, kind, said)
        plain = self._plain
        if plain is not None:
            plain = tuple(each for each in plain if could_be_of(each.policy.node.principal, caller))
        known = _Known(*said, request, entities, entity["attrs"], plain)
        _put(self._by_caller, caller, known)
        return known


def _both(lasting: Answer, passing: Answer) -> Answer:
    """Of what permits or is silent, and what was asked besides."""
    if passing.problem not in ("", NOT_PERMITTED):
        return passing
    permits = _sorted((*lasting.policies, *passing.policies))
    return Answer("", permits) if permits else SILENCE


def _sorted(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """By name, so that another order of the text decides nothing."""
    return tuple(sorted(policies, key=lambda policy: policy.name))


def _put(known: dict[Any, Any], key: object, value: object) -> None:
    if len(known) >= CALLERS_MAX:
        known.clear()
    known[key] = value


def _wanted(policies: Sequence[Policy]) -> Wanted:
    wanted = Wanted()
    for policy in policies:
        wanted.merge(policy.reads.input)
    return wanted


def _entities(entities: Sequence[Entity]) -> cedarpy.Entities:
    return cedarpy.Entities.from_json_str(orjson.dumps(entities).decode())
