"""What each RPC is asked by whoever should get nothing: one row for each, by things of somebody's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from placet.v1 import action_pb2, agent_pb2, ask_pb2, capability_pb2, decision_pb2
from placet.v1 import approval_service_pb2 as approval
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import operations_service_pb2 as operations
from placet.v1 import policy_service_pb2 as policy
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as runtime
from placet.v1 import session_service_pb2 as session


@dataclass(frozen=True, kw_only=True)
class Names:
    """Of one tenant's things."""

    tenant: str
    action: str
    waiting: str
    doubted: str
    report: str
    approval: str
    delivery: str
    session: str
    digest: str
    manifest: str
    capability: str
    key: str
    queue: str
    label: str
    subject: str

    def words(self) -> list[str]:
        return [getattr(self, name) for name in self.__dataclass_fields__ if name != "tenant"]


NOBODYS = Names(
    tenant="none",
    action="0199b0c0-0000-7000-8000-000000000001",
    waiting="0199b0c0-0000-7000-8000-000000000002",
    doubted="0199b0c0-0000-7000-8000-000000000003",
    report="0199b0c0-0000-7000-8000-000000000004",
    approval="0199b0c0-0000-7000-8000-000000000005",
    delivery="0199b0c0-0000-7000-8000-000000000006",
    session="0199b0c0-0000-7000-8000-000000000007",
    digest="cd" * 32,
    manifest="nobody",
    capability="nobody.note",
    key="nobody-key",
    queue="nobody_queue",
    label="nobody-label",
    subject="nobody-anna",
)

Ask = Callable[[Names], Message]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is asked, by things of somebody's. `alike`: the answer has nothing of its own time, so it can be compared.
    `operator`: for operators alone, whatever is asked.
    """

    ask: Ask
    alike: bool = True
    operator: bool = False


def invocation(names: Names) -> action_pb2.Invocation:
    options = action_pb2.InvocationOptions(idempotency_key=names.key, labels={"who": names.label})
    return action_pb2.Invocation(
        capability=names.capability, input_json=json.dumps({"text": "x"}), options=options
    )


def by_id(request: type[Message], **members: Any) -> Row:
    return Row(ask=lambda names: request(action_id=names.action, **members))


def filtered(names: Names) -> runtime.ActionFilter:
    return runtime.ActionFilter(capabilities=[names.capability], requester=names.subject, queue=names.queue)


def agent(names: Names) -> capability_pb2.Capability:
    """That would call what is somebody else's."""
    return capability_pb2.Capability(
        name="mine.agent",
        version="1",
        kind=capability_pb2.CAPABILITY_KIND_AGENT,
        contract=capability_pb2.Contract(effect=capability_pb2.EFFECT_CLASS_COMPOSED),
        agent=agent_pb2.AgentSpec(model="fast", tools=[agent_pb2.ToolChoice(name=names.capability)]),
    )


def policies() -> policy.PolicySet:
    """They do not parse, so nobody's change."""
    return policy.PolicySet(name="mine", cedar="permit(")


ROWS: dict[str, Row] = {
    "ApprovalService/GetApproval": Row(ask=lambda n: approval.GetApprovalRequest(approval_id=n.approval)),
    "ApprovalService/ListApprovals": Row(
        ask=lambda n: approval.ListApprovalsRequest(
            filter=approval.ApprovalFilter(capabilities=[n.capability], requester=n.subject)
        )
    ),
    "ApprovalService/DecideApproval": Row(
        ask=lambda n: approval.DecideApprovalRequest(
            approval_id=n.approval, digest=n.digest, verdict=decision_pb2.VOTE_VERDICT_DENY, decision_id="d"
        )
    ),
    "ApprovalService/RevokeDecision": Row(
        ask=lambda n: approval.RevokeDecisionRequest(approval_id=n.approval, decision_id="d")
    ),
    "ApprovalService/ProvideInput": Row(
        ask=lambda n: approval.ProvideInputRequest(
            approval_id=n.approval, digest=n.digest, answer_json="1", decision_id="d"
        )
    ),
    "ApprovalService/BatchDecideApprovals": Row(
        ask=lambda n: approval.BatchDecideApprovalsRequest(
            items=[
                approval.DecideApprovalRequest(
                    approval_id=n.approval,
                    digest=n.digest,
                    verdict=decision_pb2.VOTE_VERDICT_DENY,
                    decision_id="d",
                )
            ]
        )
    ),
    "ApprovalService/ClaimApproval": Row(ask=lambda n: approval.ClaimApprovalRequest(approval_id=n.approval)),
    "ApprovalService/ReleaseApproval": Row(
        ask=lambda n: approval.ReleaseApprovalRequest(approval_id=n.approval)
    ),
    "ApprovalService/WatchApprovals": Row(
        ask=lambda n: approval.WatchApprovalsRequest(capabilities=[n.capability]), alike=False
    ),
    "PolicyService/ValidatePolicySet": Row(
        ask=lambda _: policy.ValidatePolicySetRequest(policy_set=policies())
    ),
    "PolicyService/AdmitPolicySet": Row(ask=lambda _: policy.AdmitPolicySetRequest(policy_set=policies())),
    "PolicyService/RollBackPolicySet": Row(ask=lambda _: policy.RollBackPolicySetRequest(revision=1)),
    "PolicyService/GetPolicySet": Row(ask=lambda _: policy.GetPolicySetRequest(revision=1)),
    "PolicyService/ListPolicySets": Row(ask=lambda _: policy.ListPolicySetsRequest()),
    "PolicyService/DryRunPolicySet": Row(
        ask=lambda n: policy.DryRunPolicySetRequest(
            policy_set=policy.PolicySet(name="mine", cedar="permit(principal, action, resource);"),
            capabilities=[n.capability],
        )
    ),
    "PolicyService/ExplainDecision": Row(ask=lambda n: policy.ExplainDecisionRequest(id=n.action)),
    "RuntimeService/Execute": Row(ask=lambda n: runtime.ExecuteRequest(invocation=invocation(n))),
    "RuntimeService/ExecuteStream": Row(ask=lambda n: runtime.ExecuteStreamRequest(invocation=invocation(n))),
    "RuntimeService/Ask": Row(
        ask=lambda n: runtime.AskRequest(
            agent=n.capability,
            parts=[ask_pb2.MessagePart(text="x")],
            options=action_pb2.InvocationOptions(idempotency_key=n.key),
        )
    ),
    "RuntimeService/AskStream": Row(
        ask=lambda n: runtime.AskStreamRequest(
            ask=runtime.AskRequest(
                agent=n.capability,
                parts=[ask_pb2.MessagePart(text="x")],
                options=action_pb2.InvocationOptions(idempotency_key=n.key),
            )
        )
    ),
    "RuntimeService/ListTurns": by_id(runtime.ListTurnsRequest, with_messages=True),
    "RuntimeService/ResumeAction": by_id(runtime.ResumeActionRequest),
    "RuntimeService/ResumeActionStream": by_id(runtime.ResumeActionStreamRequest),
    "RuntimeService/Submit": Row(
        ask=lambda n: runtime.SubmitRequest(invocation=invocation(n), queue=n.queue)
    ),
    "RuntimeService/SubmitBatch": Row(
        ask=lambda n: runtime.SubmitBatchRequest(items=[runtime.SubmitRequest(invocation=invocation(n))])
    ),
    "RuntimeService/GetAction": by_id(runtime.GetActionRequest),
    "RuntimeService/ListActions": Row(ask=lambda n: runtime.ListActionsRequest(filter=filtered(n))),
    "RuntimeService/WaitAction": by_id(runtime.WaitActionRequest),
    "RuntimeService/WatchAction": by_id(runtime.WatchActionRequest),
    "RuntimeService/WatchEvents": Row(ask=lambda _: runtime.WatchEventsRequest(), alike=False),
    "RuntimeService/CancelAction": Row(ask=lambda n: runtime.CancelActionRequest(action_id=n.waiting)),
    "RuntimeService/CancelActions": Row(ask=lambda n: runtime.CancelActionsRequest(filter=filtered(n))),
    "RuntimeService/GetCaller": Row(ask=lambda _: runtime.GetCallerRequest()),
    "RuntimeService/GetServerInfo": Row(ask=lambda _: runtime.GetServerInfoRequest(), alike=False),
    # With a key, as others would be made by it.
    "SessionService/CreateSession": Row(
        ask=lambda n: session.CreateSessionRequest(title="mine", idempotency_key=n.key), alike=False
    ),
    "SessionService/GetSession": Row(ask=lambda n: session.GetSessionRequest(session_id=n.session)),
    "SessionService/ListSessions": Row(ask=lambda _: session.ListSessionsRequest(), alike=False),
    "SessionService/ListMessages": Row(ask=lambda n: session.ListMessagesRequest(session_id=n.session)),
    "SessionService/ResumeSession": Row(
        ask=lambda n: session.ResumeSessionRequest(session_id=n.session, resume_token="t")
    ),
    "SessionService/CloseSession": Row(
        ask=lambda n: session.CloseSessionRequest(session_id=n.session, cancel_active=True)
    ),
    "CatalogService/WithdrawCapability": Row(
        ask=lambda n: catalog.WithdrawCapabilityRequest(name=n.capability)
    ),
    "CatalogService/AdmitManifest": Row(
        ask=lambda n: catalog.AdmitManifestRequest(
            manifest=capability_pb2.Manifest(
                name=n.manifest,
                version="1",
                local=capability_pb2.LocalHandlers(app=n.manifest),
                capabilities=[agent(n)],
            ),
            expected_digest="ab" * 32,
        )
    ),
    "CatalogService/GetManifest": Row(ask=lambda n: catalog.GetManifestRequest(name=n.manifest)),
    "CatalogService/ListManifests": Row(ask=lambda _: catalog.ListManifestsRequest()),
    "CatalogService/GetCapability": Row(ask=lambda n: catalog.GetCapabilityRequest(name=n.capability)),
    "CatalogService/ListCapabilities": Row(
        ask=lambda n: catalog.ListCapabilitiesRequest(name_prefix=n.capability)
    ),
    "OperationsService/ListQueues": Row(ask=lambda _: operations.ListQueuesRequest()),
    "OperationsService/PauseQueue": Row(
        ask=lambda n: operations.PauseQueueRequest(queue=n.queue), alike=False
    ),
    "OperationsService/ResumeQueue": Row(ask=lambda n: operations.ResumeQueueRequest(queue=n.queue)),
    "OperationsService/ListDeliveries": Row(
        ask=lambda n: operations.ListDeliveriesRequest(
            filter=operations.DeliveryFilter(target="desk", action_id=n.waiting)
        )
    ),
    "OperationsService/GetDelivery": Row(ask=lambda n: operations.GetDeliveryRequest(delivery_id=n.delivery)),
    "OperationsService/RedeliverCallback": Row(
        ask=lambda n: operations.RedeliverCallbackRequest(delivery_id=n.delivery)
    ),
    "OperationsService/ListServers": Row(ask=lambda _: operations.ListServersRequest(), operator=True),
    "RecoveryService/ListDeadLetters": Row(ask=lambda _: recovery.ListDeadLettersRequest()),
    "RecoveryService/Redrive": Row(
        ask=lambda n: recovery.RedriveRequest(selection=recovery.EndedSelection(action_ids=[n.action]))
    ),
    "RecoveryService/ListAmbiguous": Row(
        ask=lambda n: recovery.ListAmbiguousRequest(capabilities=[n.capability])
    ),
    "RecoveryService/ResolveAmbiguous": Row(
        ask=lambda n: recovery.ResolveAmbiguousRequest(
            action_id=n.doubted, verdict=recovery.VERDICT_NOT_DONE, reason="mine", evidence="mine"
        )
    ),
    "RecoveryService/Reconcile": Row(ask=lambda n: recovery.ReconcileRequest(action_ids=[n.doubted])),
    "RecoveryService/Recover": Row(ask=lambda _: recovery.RecoverRequest(validate_only=True), alike=False),
    "RecoveryService/GetReport": Row(ask=lambda n: recovery.GetReportRequest(report_id=n.report)),
    "RecoveryService/ListReports": Row(ask=lambda _: recovery.ListReportsRequest(), alike=False),
}
