"""Callers → message. There is no way back: a payload says nothing of who calls."""

from __future__ import annotations

from functools import lru_cache

from placet.v1 import action_pb2
from placet_server.model.action import Requester
from placet_server.model.caller import Caller, CallerKind, Delegate, Login
from placet_server.rpc.convert.enumeration import CALLER_KIND
from placet_server.rpc.convert.time import timestamp


def caller_message(caller: Caller) -> action_pb2.Caller:
    return action_pb2.Caller(
        tenant=caller.tenant,
        subject=caller.subject,
        kind=CALLER_KIND[caller.kind],
        roles=caller.roles,
        groups=caller.groups,
        scopes=sorted(caller.scopes),
        delegation=map(_delegate, caller.delegation),
        login=_login(caller.login),
    )


@lru_cache(maxsize=1024)
def requester_message(requester: Requester) -> action_pb2.Caller:
    """Shared between calls: copy it, never change it."""
    return action_pb2.Caller(
        tenant=requester.tenant,
        subject=requester.subject,
        kind=CALLER_KIND[CallerKind(requester.kind)],
        roles=requester.roles,
        groups=requester.groups,
        scopes=requester.scopes,
        delegation=map(_delegate, requester.delegation),
        login=_login(requester.login),
    )


def _delegate(delegate: Delegate) -> action_pb2.Delegate:
    return action_pb2.Delegate(subject=delegate.subject, kind=CALLER_KIND[delegate.kind])


def _login(login: Login | None) -> action_pb2.Login | None:
    if login is None:
        return None
    return action_pb2.Login(
        strength=login.strength,
        methods=login.methods,
        time=None if login.time_us is None else timestamp(login.time_us),
    )
