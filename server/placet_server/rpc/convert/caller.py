"""Callers → message. There is no way back: a payload says nothing of who calls."""

from __future__ import annotations

from functools import lru_cache

from placet.v1 import action_pb2
from placet_server.model.action import Requester
from placet_server.model.caller import Caller, CallerKind
from placet_server.rpc.convert.enumeration import CALLER_KIND


def caller_message(caller: Caller) -> action_pb2.Caller:
    return action_pb2.Caller(
        tenant=caller.tenant,
        subject=caller.subject,
        kind=CALLER_KIND[caller.kind],
        roles=caller.roles,
        scopes=sorted(caller.scopes),
    )


def requester_message(requester: Requester) -> action_pb2.Caller:
    """Shared between calls: copy it, never change it."""
    return _requester(requester.tenant, requester.subject, requester.kind, requester.roles, requester.scopes)


@lru_cache(maxsize=1024)
def _requester(
    tenant: str, subject: str, kind: str, roles: tuple[str, ...], scopes: tuple[str, ...]
) -> action_pb2.Caller:
    return action_pb2.Caller(
        tenant=tenant, subject=subject, kind=CALLER_KIND[CallerKind(kind)], roles=roles, scopes=scopes
    )
