"""Which scope each RPC needs."""

from __future__ import annotations

from placet_server.model.caller import EVERY_SCOPE, OPERATOR_SCOPE, Caller
from placet_server.model.errors import ScopeMissing
from placet_server.model.session import SESSION_SCOPE

# For saying yes or no.
DECIDE_SCOPE = "approvals.decide"
# Where a request names a tenant: all of them.
EVERY_TENANT = "-"

# None: being known is enough.
SCOPES: dict[str, str | None] = {
    "/placet.v1.RuntimeService/Execute": "actions.execute",
    "/placet.v1.RuntimeService/ExecuteStream": "actions.execute",
    "/placet.v1.RuntimeService/Ask": "actions.execute",
    "/placet.v1.RuntimeService/AskStream": "actions.execute",
    "/placet.v1.RuntimeService/ResumeAction": "actions.execute",
    "/placet.v1.RuntimeService/ResumeActionStream": "actions.execute",
    "/placet.v1.RuntimeService/Submit": "actions.execute",
    "/placet.v1.RuntimeService/SubmitBatch": "actions.execute",
    "/placet.v1.RuntimeService/GetAction": "actions.read",
    "/placet.v1.RuntimeService/ListActions": "actions.read",
    "/placet.v1.RuntimeService/ListTurns": "actions.read",
    "/placet.v1.RuntimeService/WaitAction": "actions.read",
    "/placet.v1.RuntimeService/WatchAction": "actions.read",
    "/placet.v1.RuntimeService/WatchEvents": "actions.read",
    "/placet.v1.RuntimeService/CancelAction": "actions.cancel",
    "/placet.v1.RuntimeService/CancelActions": "actions.cancel",
    "/placet.v1.RuntimeService/GetCaller": None,
    "/placet.v1.RuntimeService/GetServerInfo": None,
    "/placet.v1.CatalogService/AdmitManifest": "catalog.admit",
    "/placet.v1.CatalogService/WithdrawCapability": "catalog.admit",
    "/placet.v1.CatalogService/GetManifest": "catalog.read",
    "/placet.v1.CatalogService/ListManifests": "catalog.read",
    "/placet.v1.CatalogService/GetCapability": "catalog.read",
    "/placet.v1.CatalogService/ListCapabilities": "catalog.read",
    "/placet.v1.ApprovalService/GetApproval": "approvals.read",
    "/placet.v1.ApprovalService/ListApprovals": "approvals.read",
    "/placet.v1.ApprovalService/WatchApprovals": "approvals.read",
    "/placet.v1.ApprovalService/DecideApproval": DECIDE_SCOPE,
    "/placet.v1.ApprovalService/RevokeDecision": DECIDE_SCOPE,
    "/placet.v1.PolicyService/ValidatePolicySet": "policy.read",
    "/placet.v1.PolicyService/AdmitPolicySet": "policy.admit",
    "/placet.v1.PolicyService/RollBackPolicySet": "policy.admit",
    "/placet.v1.PolicyService/GetPolicySet": "policy.read",
    "/placet.v1.PolicyService/ListPolicySets": "policy.read",
    "/placet.v1.PolicyService/DryRunPolicySet": "policy.read",
    "/placet.v1.PolicyService/ExplainDecision": "actions.read",
    "/placet.v1.ApprovalService/ProvideInput": DECIDE_SCOPE,
    "/placet.v1.ApprovalService/BatchDecideApprovals": DECIDE_SCOPE,
    "/placet.v1.ApprovalService/ClaimApproval": DECIDE_SCOPE,
    "/placet.v1.ApprovalService/ReleaseApproval": DECIDE_SCOPE,
    "/placet.v1.SessionService/CreateSession": SESSION_SCOPE,
    "/placet.v1.SessionService/GetSession": SESSION_SCOPE,
    "/placet.v1.SessionService/ListSessions": SESSION_SCOPE,
    "/placet.v1.SessionService/ListMessages": SESSION_SCOPE,
    "/placet.v1.SessionService/ResumeSession": SESSION_SCOPE,
    "/placet.v1.SessionService/CloseSession": SESSION_SCOPE,
    "/placet.v1.OperationsService/ListQueues": "operations.read",
    "/placet.v1.OperationsService/PauseQueue": "operations.write",
    "/placet.v1.OperationsService/ResumeQueue": "operations.write",
    "/placet.v1.OperationsService/ListServers": "operations.read",
    "/placet.v1.OperationsService/ListDeliveries": "operations.read",
    "/placet.v1.OperationsService/GetDelivery": "operations.read",
    "/placet.v1.OperationsService/RedeliverCallback": "operations.write",
    "/placet.v1.RecoveryService/ListDeadLetters": "recovery.read",
    "/placet.v1.RecoveryService/Redrive": "recovery.write",
    "/placet.v1.RecoveryService/ListAmbiguous": "recovery.read",
    "/placet.v1.RecoveryService/ResolveAmbiguous": "recovery.write",
    "/placet.v1.RecoveryService/Reconcile": "recovery.write",
    "/placet.v1.RecoveryService/Recover": "recovery.write",
    "/placet.v1.RecoveryService/GetReport": "recovery.read",
    "/placet.v1.RecoveryService/ListReports": "recovery.read",
}


def permitted_rpcs(caller: Caller) -> list[str]:
    """Full method names, without the leading slash, that the caller's scopes allow."""
    return sorted(path[1:] for path, scope in SCOPES.items() if _allowed(caller, scope))


def permit(caller: Caller, scope: str | None) -> None:
    """Raises ScopeMissing unless the caller has the scope that a method needs."""
    if scope is not None and not _allowed(caller, scope):
        raise ScopeMissing(scope=scope)


def tenant_of(caller: Caller, named: str) -> str | None:
    """The tenant that a request means: the caller's own if it names none; None is every tenant.

    Raises ScopeMissing unless it is the caller's own or the caller is an operator.
    """
    if named in ("", caller.tenant):
        return caller.tenant
    permit(caller, OPERATOR_SCOPE)
    return None if named == EVERY_TENANT else named


def owner_of(caller: Caller, named: str) -> str:
    """Whose policies a request means: the caller's own, or, named "-", the operator's. Raises ScopeMissing."""
    if not named:
        return caller.tenant
    permit(caller, OPERATOR_SCOPE)
    return EVERY_TENANT


def may(caller: Caller, scope: str) -> bool:
    """Whether the caller has a scope that only part of an answer needs."""
    return _allowed(caller, scope)


def _allowed(caller: Caller, scope: str | None) -> bool:
    return scope is None or scope in caller.scopes or EVERY_SCOPE in caller.scopes
