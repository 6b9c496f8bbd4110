"""One good request for each RPC that takes anything, to be spoiled."""

from __future__ import annotations

from google.protobuf.message import Message

from placet.v1 import (
    action_pb2,
    agent_pb2,
    ask_pb2,
    capability_pb2,
    decision_pb2,
    operations_service_pb2,
)
from placet.v1 import approval_service_pb2 as approvals
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import policy_service_pb2 as policy
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as pb
from placet.v1 import session_service_pb2 as sessions
from tests.rpc.support import ACTION_ID

INVOCATION = action_pb2.Invocation(
    capability="hostile.echo",
    input_json='{"text":"a"}',
    options=action_pb2.InvocationOptions(idempotency_key="k", labels={"a": "b"}),
)
CAPABILITY = capability_pb2.Capability(
    name="dice.tool",
    version="1",
    kind=capability_pb2.CAPABILITY_KIND_TOOL,
    input_schema_json='{"type":"object"}',
    contract=capability_pb2.Contract(effect=capability_pb2.EFFECT_CLASS_READ),
    presentation=capability_pb2.Presentation(title="t", key_fields=["a"]),
)
AGENT = capability_pb2.Capability(
    name="dice.agent",
    version="1",
    kind=capability_pb2.CAPABILITY_KIND_AGENT,
    contract=capability_pb2.Contract(effect=capability_pb2.EFFECT_CLASS_COMPOSED),
    agent=agent_pb2.AgentSpec(
        model="openai:gpt-5",
        instructions="Help {{name}}.",
        tools=[agent_pb2.ToolChoice(name="dice.tool", scopes=["a"]), agent_pb2.ToolChoice(name="dice.*")],
        budget=agent_pb2.Budget(turns=5, tokens=1000),
        settings=agent_pb2.ModelSettings(temperature=0.5),
    ),
)
POLICY_SET = policy.PolicySet(
    name="dice",
    cedar="permit (principal, action, resource);",
    overlays=[policy.PolicyOverlay(pattern="dice.*", hazards=[capability_pb2.HAZARD_WRITE])],
)
GOOD: dict[str, Message] = {
    "Execute": pb.ExecuteRequest(invocation=INVOCATION),
    "ExecuteStream": pb.ExecuteStreamRequest(invocation=INVOCATION),
    "Ask": pb.AskRequest(
        agent="hostile.echo",
        parts=[ask_pb2.MessagePart(text="a"), ask_pb2.MessagePart(json='{"a":1}')],
        arguments={"name": "b"},
        options=action_pb2.InvocationOptions(idempotency_key="k"),
    ),
    "AskStream": pb.AskStreamRequest(
        ask=pb.AskRequest(agent="hostile.echo", parts=[ask_pb2.MessagePart(text="a")])
    ),
    "ListTurns": pb.ListTurnsRequest(action_id=ACTION_ID, page_size=5, with_messages=True),
    "CreateSession": sessions.CreateSessionRequest(
        agent="dice.agent", title="t", labels={"a": "b"}, idempotency_key="k"
    ),
    "GetSession": sessions.GetSessionRequest(session_id=ACTION_ID),
    "ListSessions": sessions.ListSessionsRequest(page_size=5),
    "ListMessages": sessions.ListMessagesRequest(session_id=ACTION_ID, page_size=5),
    "ResumeSession": sessions.ResumeSessionRequest(
        session_id=ACTION_ID, resume_token="t", idempotency_key="k"
    ),
    "CloseSession": sessions.CloseSessionRequest(session_id=ACTION_ID, cancel_active=True),
    "Submit": pb.SubmitRequest(invocation=INVOCATION, queue="dice", priority=1),
    "SubmitBatch": pb.SubmitBatchRequest(items=[pb.SubmitRequest(invocation=INVOCATION, queue="dice")] * 2),
    "GetAction": pb.GetActionRequest(key=pb.KeyRef(capability="hostile.echo", idempotency_key="k")),
    "ListActions": pb.ListActionsRequest(page_size=5, filter=pb.ActionFilter(requester="dora")),
    "WaitAction": pb.WaitActionRequest(action_id=ACTION_ID),
    "WatchAction": pb.WatchActionRequest(action_id=ACTION_ID),
    "ResumeAction": pb.ResumeActionRequest(action_id=ACTION_ID),
    "ResumeActionStream": pb.ResumeActionStreamRequest(action_id=ACTION_ID),
    "WatchEvents": pb.WatchEventsRequest(filter=pb.EventFilter(capabilities=["hostile.echo"])),
    "CancelAction": pb.CancelActionRequest(action_id=ACTION_ID, reason="r"),
    "CancelActions": pb.CancelActionsRequest(filter=pb.ActionFilter(requester="dora"), reason="r"),
    "AdmitManifest": catalog.AdmitManifestRequest(
        manifest=capability_pb2.Manifest(name="dice", version="1", capabilities=[CAPABILITY, AGENT]),
        validate_only=True,
    ),
    "WithdrawCapability": catalog.WithdrawCapabilityRequest(name="dice.none", version="1", reason="r"),
    "GetManifest": catalog.GetManifestRequest(name="hostile"),
    "ListManifests": catalog.ListManifestsRequest(page_size=5),
    "ListCapabilities": catalog.ListCapabilitiesRequest(
        page_size=5, name_prefix="hostile.", kind=capability_pb2.CAPABILITY_KIND_TOOL
    ),
    "GetCapability": catalog.GetCapabilityRequest(name="hostile.echo", version="1"),
    "ValidatePolicySet": policy.ValidatePolicySetRequest(policy_set=POLICY_SET),
    "AdmitPolicySet": policy.AdmitPolicySetRequest(policy_set=POLICY_SET, validate_only=True),
    "RollBackPolicySet": policy.RollBackPolicySetRequest(revision=1),
    "GetPolicySet": policy.GetPolicySetRequest(revision=1),
    "ListPolicySets": policy.ListPolicySetsRequest(page_size=5),
    "DryRunPolicySet": policy.DryRunPolicySetRequest(policy_set=POLICY_SET, page_size=5),
    "ExplainDecision": policy.ExplainDecisionRequest(id=ACTION_ID),
    "ListQueues": operations_service_pb2.ListQueuesRequest(tenant="dice"),
    "PauseQueue": operations_service_pb2.PauseQueueRequest(queue="dice_paused", reason="r"),
    "ResumeQueue": operations_service_pb2.ResumeQueueRequest(queue="dice_paused"),
    "ListServers": operations_service_pb2.ListServersRequest(page_size=5),
    "ListDeliveries": operations_service_pb2.ListDeliveriesRequest(
        page_size=5, filter=operations_service_pb2.DeliveryFilter(target="desk", action_id=ACTION_ID)
    ),
    "GetDelivery": operations_service_pb2.GetDeliveryRequest(delivery_id=ACTION_ID),
    "RedeliverCallback": operations_service_pb2.RedeliverCallbackRequest(
        delivery_id=ACTION_ID, idempotency_key="k"
    ),
    "ListDeadLetters": recovery.ListDeadLettersRequest(
        page_size=5, filter=recovery.DeadLetterFilter(queue="dice")
    ),
    "Redrive": recovery.RedriveRequest(
        selection=recovery.EndedSelection(filter=recovery.DeadLetterFilter(queue="dice")), reason="r"
    ),
    "ListAmbiguous": recovery.ListAmbiguousRequest(page_size=5, capabilities=["hostile.echo"]),
    "Reconcile": recovery.ReconcileRequest(action_ids=[ACTION_ID]),
    "Recover": recovery.RecoverRequest(families=[recovery.REPORT_FAMILY_QUEUES], validate_only=True),
    "GetReport": recovery.GetReportRequest(report_id=ACTION_ID),
    "ListReports": recovery.ListReportsRequest(page_size=5),
    "GetApproval": approvals.GetApprovalRequest(approval_id=ACTION_ID),
    "ListApprovals": approvals.ListApprovalsRequest(page_size=5),
    "RevokeDecision": approvals.RevokeDecisionRequest(approval_id=ACTION_ID, decision_id="d", reason="r"),
    "DecideApproval": approvals.DecideApprovalRequest(
        approval_id=ACTION_ID,
        digest="0" * 64,
        verdict=decision_pb2.VOTE_VERDICT_DENY,
        decision_id="d",
        suggested_input_json="{}",
    ),
    "ProvideInput": approvals.ProvideInputRequest(
        approval_id=ACTION_ID, digest="0" * 64, answer_json="{}", decision_id="d"
    ),
    "ClaimApproval": approvals.ClaimApprovalRequest(approval_id=ACTION_ID),
    "WatchApprovals": approvals.WatchApprovalsRequest(capabilities=["hostile.echo"], eligible_only=True),
    "ReleaseApproval": approvals.ReleaseApprovalRequest(approval_id=ACTION_ID),
    "BatchDecideApprovals": approvals.BatchDecideApprovalsRequest(
        items=[approvals.DecideApprovalRequest(approval_id=ACTION_ID, decision_id="d")]
    ),
    "ResolveAmbiguous": recovery.ResolveAmbiguousRequest(
        action_id=ACTION_ID, verdict=recovery.VERDICT_DONE, output_json="{}", reason="r", evidence="e"
    ),
}
