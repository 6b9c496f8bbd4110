"""The words that policies are written in: entities of a call, and a Cedar schema made of a tenant's capabilities.

principal  User, Service or Agent, by subject; in its Role and Group
action     the capability's name, in each of its dotted prefixes, and in "any"
resource   the Capability, with the facts of its contract
context    the input, the labels, the capability of the parent, how often the caller was delegated
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import cedarpy
import orjson

from placet_server.model.caller import Caller, CallerKind
from placet_server.model.capability import Capability
from placet_server.model.contract import Hazard, Risk
from placet_server.model.manifest import Problem
from placet_server.model.policy import Overlay
from placet_server.model.policy_text import MESSAGE_LENGTH_MAX
from placet_server.model.policy_type import (
    NOTHING_TYPED,
    RecordOf,
    cedar_schema_of,
    input_type,
    merged,
)

PRINCIPALS = {CallerKind.USER: "User", CallerKind.SERVICE: "Service", CallerKind.AGENT: "Agent"}
ACTION, CAPABILITY, ROLE, GROUP = "Action", "Capability", "Role", "Group"
ANY = "any"

_STRING, _LONG, _BOOLEAN = {"type": "String"}, {"type": "Long"}, {"type": "Boolean"}
_STRINGS = {"type": "Set", "element": _STRING}
_RISKS = {risk: place for place, risk in enumerate(Risk, 1)}

Entity = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A capability as policies see it: beside its contract, who admitted it and what overlays add."""

    capability: Capability
    manifest: str


def groups_of(name: str) -> list[str]:
    """Of the action that invokes a capability: "payments" and "any" of "payments.refund"."""
    parts = name.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
    return [group for group in (*prefixes, ANY) if group != name]


def action_entities(name: str) -> list[Entity]:
    """The action and its groups."""
    groups = groups_of(name)
    parents = [_uid(ACTION, group) for group in groups]
    own = {"uid": _uid(ACTION, name), "attrs": {}, "parents": parents}
    return [own, *({"uid": _uid(ACTION, group), "attrs": {}, "parents": []} for group in groups)]


def capability_entity(offered: Offered, overlays: Iterable[Overlay]) -> Entity:
    """The resource; `overlays`: those that cover it."""
    capability = offered.capability
    contract, added = capability.contract, list(overlays)
    hazards: set[Hazard] = set(contract.hazards).union(*(overlay.hazards for overlay in added))
    attributes = {
        "name": capability.name,
        "version": capability.version,
        "kind": capability.kind.value,
        "effect": contract.effect.value,
        "hazards": sorted(hazard.value for hazard in hazards),
        "risk": _RISKS[contract.risk],
        "manifest": offered.manifest,
        "has_approval": contract.approval is not None or any(overlay.approval for overlay in added),
    }
    return {"uid": _uid(CAPABILITY, capability.name), "attrs": attributes, "parents": []}


def principal_entity(caller: Caller) -> Entity:
    attributes = {
        "tenant": caller.tenant,
        "roles": sorted(caller.roles),
        "groups": sorted(caller.groups),
        "scopes": sorted(caller.scopes),
        "delegates": sorted({delegate.subject for delegate in caller.delegation}),
    }
    parents = [_uid(ROLE, role) for role in sorted(set(caller.roles))]
    parents += [_uid(GROUP, group) for group in sorted(set(caller.groups))]
    return {"uid": principal_uid(caller), "attrs": attributes, "parents": parents}


def principal_uid(caller: Caller) -> dict[str, str]:
    return _uid(PRINCIPALS[caller.kind], caller.subject)


def action_uid(name: str) -> dict[str, str]:
    return _uid(ACTION, name)


def capability_uid(name: str) -> dict[str, str]:
    return _uid(CAPABILITY, name)


def schema_of(capabilities: Iterable[Capability]) -> str:
    """As Cedar's JSON schema. Versions of one name have one action, with what their inputs have alike."""
    inputs: dict[str, list[RecordOf]] = {}
    for capability in capabilities:
        inputs.setdefault(capability.name, []).append(input_type(capability.input_schema_value))
    actions: dict[str, Any] = {ANY: {}}
    for name in inputs:
        for group in groups_of(name):
            actions.setdefault(group, {"memberOf": [{"id": above} for above in groups_of(group)]})
    for name, types in inputs.items():
        actions[name] = _action(name, merged(types))
    return orjson.dumps({"": {"entityTypes": _entity_types(), "actions": actions}}).decode()


def schema_problems(cedar: str, schema: str) -> list[Problem]:
    """What in the policies does not fit the schema. Takes its time: not for the event loop.

    The text has been parsed without problems.
    """
    found = cedarpy.validate_policies(cedar, schema, release_gil=True)
    names = found.id_annotations_by_policy_id
    return [
        Problem(
            path=f"policies[{error.policy_id.removeprefix('policy')}]" if error.policy_id else "cedar",
            code="policy_invalid",
            message=_told(names.get(error.policy_id, ""), error.error)[:MESSAGE_LENGTH_MAX],
        )
        for error in found.errors
    ]


def context_of(
    wanted: Collection[str],
    *,
    input_members: Mapping[str, Any],
    labels: Mapping[str, str],
    parent: str,
    delegation_depth: int,
) -> dict[str, Any]:
    """What is wanted of it, as Cedar's JSON writes values."""
    context: dict[str, Any] = {}
    if "input" in wanted:
        context["input"] = input_members
    if "labels" in wanted:
        context["labels"] = [f"{key}={value}" for key, value in labels.items()]
    if "delegation_depth" in wanted:
        context["delegation_depth"] = delegation_depth
    if parent and "parent" in wanted:
        context["parent"] = parent
    return context


def _action(name: str, input_record: RecordOf = NOTHING_TYPED) -> dict[str, Any]:
    context = {
        "input": cedar_schema_of(input_record) | {"required": True},
        "labels": _STRINGS | {"required": True},
        "parent": _STRING | {"required": False},
        "delegation_depth": _LONG | {"required": True},
    }
    return {
        "memberOf": [{"id": group} for group in groups_of(name)],
        "appliesTo": {
            "principalTypes": list(PRINCIPALS.values()),
            "resourceTypes": [CAPABILITY],
            "context": {"type": "Record", "attributes": context},
        },
    }


def _entity_types() -> dict[str, Any]:
    principal = {
        "memberOfTypes": [ROLE, GROUP],
        "shape": _record(
            {
                "tenant": _STRING,
                "roles": _STRINGS,
                "groups": _STRINGS,
                "scopes": _STRINGS,
                "delegates": _STRINGS,
            }
        ),
    }
    capability = {
        "shape": _record(
            {
                "name": _STRING,
                "version": _STRING,
                "kind": _STRING,
                "effect": _STRING,
                "hazards": _STRINGS,
                "risk": _LONG,
                "manifest": _STRING,
                "has_approval": _BOOLEAN,
            }
        )
    }
    return {ROLE: {}, GROUP: {}, CAPABILITY: capability} | dict.fromkeys(PRINCIPALS.values(), principal)


def _record(members: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "Record",
        "attributes": {name: kind | {"required": True} for name, kind in members.items()},
    }


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "id": name}


def _told(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text
