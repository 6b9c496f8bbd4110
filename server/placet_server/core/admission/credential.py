"""The credential gate: does the caller carry the credential handle that the contract asks for?"""

from __future__ import annotations

import time

from placet_server.model.caller import Caller, Credential
from placet_server.model.capability import Capability
from placet_server.model.gate_errors import CredentialMismatch


def check_credential(capability: Capability, caller: Caller) -> None:
    """Raises CredentialMismatch."""
    rule = capability.contract.credentials
    if not rule.required:
        return
    problem = _problem(caller.credential, rule.issuers, rule.scopes)
    if problem is not None:
        raise CredentialMismatch(capability=capability.name, problem=problem)


def _problem(credential: Credential | None, issuers: tuple[str, ...], scopes: tuple[str, ...]) -> str | None:
    if credential is None:
        return "missing"
    if credential.expire_time_us is not None and credential.expire_time_us <= time.time_ns() // 1000:
        return "expired"
    if issuers and credential.issuer not in issuers:
        return "wrong_issuer"
    if not credential.scopes.issuperset(scopes):
        return "missing_scope"
    return None
