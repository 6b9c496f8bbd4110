"""Whom and what a policy is about, as far as its head says it."""

from __future__ import annotations

from cedarpy import pst

from placet_server.model.caller import Caller
from placet_server.model.policy_schema import ACTION, CAPABILITY, groups_of, principal_entity, principal_uid


def could_concern(node: pst.Template, name: str) -> bool:
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


def concerns(node: pst.Template, name: str) -> bool:
    """Beyond doubt: what could concern a capability, and is of the usual types, does."""
    match node.action:
        case pst.ActionEq(entity=entity):
            types = {str(entity.type)}
        case pst.ActionIn(entities=entities):
            types = {str(entity.type) for entity in entities}
        case _:
            types = set()
    match node.resource:
        case pst.ScopeAny():
            is_usual = True
        case pst.ScopeIs(entity_type=entity_type):
            is_usual = str(entity_type) == CAPABILITY
        case pst.ScopeEq(entity=pst.EntityUid() as entity):
            is_usual = (str(entity.type), entity.id) == (CAPABILITY, name)
        case _:
            is_usual = False
    return is_usual and types <= {ACTION}


def could_be_of(constraint: pst.PrincipalOrResourceConstraint, caller: Caller) -> bool:
    """Whether the head of a policy leaves it open that it applies to a caller."""
    uid = principal_uid(caller)
    match constraint:
        case pst.ScopeEq(entity=pst.EntityUid() as entity):
            return (str(entity.type), entity.id) == (uid["type"], uid["id"])
        case pst.ScopeIs(entity_type=entity_type):
            return str(entity_type) == uid["type"]
        case pst.ScopeIn(entity=pst.EntityUid() as entity):
            return (str(entity.type), entity.id) in _circle(caller)
        case pst.ScopeIsIn(entity_type=entity_type, entity=pst.EntityUid() as entity):
            return str(entity_type) == uid["type"] and (str(entity.type), entity.id) in _circle(caller)
    return True


def _circle(caller: Caller) -> set[tuple[str, str]]:
    """The caller, and what he is in."""
    entity = principal_entity(caller)
    return {(uid["type"], uid["id"]) for uid in (entity["uid"], *entity["parents"])}
