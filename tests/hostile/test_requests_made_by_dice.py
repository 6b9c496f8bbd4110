"""Requests of every RPC with values at and beyond every bound: refused or answered in type, never a fault of ours."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placet.v1 import action_pb2, capability_pb2, decision_pb2, operations_service_pb2
from placet.v1 import approval_service_pb2 as approvals
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import policy_service_pb2 as policy
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as pb
from tests.hostile.served import Served
from tests.rpc.support import ACTION_ID, SERVICES, Refusal, bearer

EXAMPLES = 100
METHODS = {
    f"/{service.full_name}/{method.name}": method.input_type
    for service in SERVICES
    for method in service.methods
}
# gRPC's own answers have no ErrorInfo; at these sizes and deadlines only the last of time may come from it.
OWN_OF_TRANSPORT = {grpc.StatusCode.DEADLINE_EXCEEDED}

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
POLICY_SET = policy.PolicySet(
    name="dice",
    cedar="permit (principal, action, resource);",
    overlays=[policy.PolicyOverlay(pattern="dice.*", hazards=[capability_pb2.HAZARD_WRITE])],
)
GOOD: dict[str, Message] = {
    "Execute": pb.ExecuteRequest(invocation=INVOCATION),
    "ExecuteStream": pb.ExecuteStreamRequest(invocation=INVOCATION),
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
        manifest=capability_pb2.Manifest(name="dice", version="1", capabilities=[CAPABILITY]),
        validate_only=True,
    ),
    "WithdrawCapability": catalog.WithdrawCapabilityRequest(name="dice.none", version="1", reason="r"),
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

TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "\x00",
            "a\x00b",
            ACTION_ID,
            "hostile.echo",
            "hostile.order",
            "hostile.any",
            "{}",
            '{"text":"a"}',
            '{"$ref":"file:///etc/passwd"}',
            "k",
            "1",
            "permit (principal, action, resource);",
            "'; drop table actions; --",
            "%s%n",
            "\u202e\u2066",
            "\U0010ffff",
            "a" * 300,
            "√" * 5000,
            "[" * 3000,
        ]
    ),
    st.text(max_size=40),
)
NUMBERS: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_INT32: st.sampled_from([0, 1, -1, 50, 1000, 2**31 - 1, -(2**31)]),
    FieldDescriptor.CPPTYPE_INT64: st.sampled_from([0, 1, -1, 10**9, 253402300800, 2**63 - 1, -(2**63)]),
    FieldDescriptor.CPPTYPE_ENUM: st.sampled_from([0, 1, 2, 3, 99, -1, 2**31 - 1]),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
}


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 0) -> Message:
    message: Message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        # Shallow fields are mostly there, so that the bounds within are met.
        if draw(st.integers(0, 9)) < 3 + depth:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name).update(draw(st.dictionaries(TEXTS, TEXTS, max_size=3)))
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                _append(draw, message, field, depth)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(draw(messages(field.message_type, depth + 1)))
        else:
            setattr(message, field.name, draw(scalar(field)))
    return message


def _append(draw: st.DrawFn, message: Message, field: FieldDescriptor, depth: int) -> None:
    values = getattr(message, field.name)
    if field.message_type is not None:
        values.append(draw(messages(field.message_type, depth + 1)))
    else:
        values.append(draw(scalar(field)))


def scalar(field: FieldDescriptor) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return TEXTS
    return NUMBERS[field.cpp_type]


def graft(draw: st.DrawFn, good: Message, wild: Message) -> None:
    """Replaces one value, somewhere within the good request, by the wild one's."""
    wild_fields = [field for field, _ in wild.ListFields()]
    if not wild_fields:
        return
    field = draw(st.sampled_from(wild_fields))
    if field.message_type is not None and not field.is_repeated and good.HasField(field.name):
        graft(draw, getattr(good, field.name), getattr(wild, field.name))
        return
    good.ClearField(field.name)
    if field.is_repeated or field.message_type is not None:
        getattr(good, field.name).MergeFrom(getattr(wild, field.name))
    else:
        setattr(good, field.name, getattr(wild, field.name))


@st.composite
def requests(draw: st.DrawFn, path: str) -> Message:
    """Wild all over, or good but for one value."""
    wild: Message = draw(messages(METHODS[path]))
    name = path.rpartition("/")[2]
    if name not in GOOD or draw(st.booleans()):
        return wild
    good: Message = GetMessageClass(METHODS[path])()
    good.CopyFrom(GOOD[name])
    graft(draw, good, wild)
    return good


@pytest.mark.parametrize("path", METHODS)
async def test_no_request_makes_a_fault_of_the_server(server: Served, path: str) -> None:
    # Policies that come by dice would refuse what others throw.
    token = bearer(server.token("dice_policies" if "/PolicyService" in path else "dice", "dora"))
    loop = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(server.target) as channel:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(requests(path))
        def look(request: Message) -> None:
            asked = ask(channel, path, request, token)
            asyncio.run_coroutine_threadsafe(asked, loop).result(20)

        await asyncio.to_thread(look)
    assert "incident" not in server.log()
    await server.answers()


async def ask(channel: grpc.aio.Channel, path: str, request: Message, token: Any) -> None:
    method: Any = channel.unary_stream(path)
    # A feed has no end.
    seconds = 0.05 if path.endswith(("/WatchEvents", "/WatchApprovals")) else 1.0
    try:
        async for _ in method(request.SerializeToString(), metadata=token, timeout=seconds):
            pass
    except grpc.aio.AioRpcError as error:
        refused = Refusal(error)
        assert refused.code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), (
            request,
            refused.message,
        )
        if not (refused.infos == [] and refused.code in OWN_OF_TRANSPORT):
            assert refused.reason, (request, refused.code, refused.message)
