"""Requests made by hand: no UTF-8, NUL where text is stored or searched, enums of nowhere, no message at all."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from placet.v1 import action_pb2, decision_pb2, operations_service_pb2
from placet.v1 import approval_service_pb2 as approvals
from placet.v1 import catalog_service_pb2 as catalog
from placet.v1 import policy_service_pb2 as policy
from placet.v1 import recovery_service_pb2 as recovery
from placet.v1 import runtime_service_pb2 as pb
from tests.hostile import deliveries
from tests.hostile.served import Client, Served
from tests.rpc.support import ACTION_ID, ALL_PATHS, refusal, send_bytes

RUNTIME = "/placet.v1.RuntimeService/"
CATALOG = "/placet.v1.CatalogService/"
OPERATIONS = "/placet.v1.OperationsService/"
RECOVERY = "/placet.v1.RecoveryService/"
APPROVAL = "/placet.v1.ApprovalService/"


def field(number: int, payload: bytes) -> bytes:
    """Length-delimited; numbers up to 15, payloads up to 127 bytes."""
    return bytes((number << 3 | 2, len(payload))) + payload


def number(number: int, value: int) -> bytes:
    return bytes((number << 3, value))


ECHO = field(1, b"hostile.echo") + field(3, b'{"text":"a"}')
BAD = b"a\xc3\x28"
NO_UTF8 = {
    "capability": (RUNTIME + "Execute", field(1, field(1, BAD))),
    "input": (RUNTIME + "Execute", field(1, field(1, b"hostile.echo") + field(3, b'{"text":"\xff"}'))),
    "key": (RUNTIME + "Execute", field(1, ECHO + field(4, field(1, BAD)))),
    "label": (
        RUNTIME + "ExecuteStream",
        field(1, ECHO + field(4, field(10, field(1, BAD) + field(2, b"v")))),
    ),
    "queue": (RUNTIME + "Submit", field(1, ECHO) + field(2, BAD)),
    "queue in a batch": (RUNTIME + "SubmitBatch", field(1, field(1, ECHO) + field(2, BAD))),
    "tenant": (OPERATIONS + "ListQueues", field(1, BAD)),
    "queue to pause": (OPERATIONS + "PauseQueue", field(2, BAD)),
    "reason to pause": (OPERATIONS + "PauseQueue", field(2, b"q") + field(3, BAD)),
    "queue to resume": (OPERATIONS + "ResumeQueue", field(2, BAD)),
    "queue of dead letters": (RECOVERY + "ListDeadLetters", field(4, field(2, BAD))),
    "page of servers": (OPERATIONS + "ListServers", field(2, BAD)),
    "target of deliveries": (OPERATIONS + "ListDeliveries", field(2, field(2, BAD))),
    "key of a redelivery": (
        OPERATIONS + "RedeliverCallback",
        field(1, ACTION_ID.encode()) + field(2, BAD),
    ),
    "id to redrive": (RECOVERY + "Redrive", field(1, field(1, BAD))),
    "reason to redrive": (RECOVERY + "Redrive", field(1, field(1, ACTION_ID.encode())) + field(3, BAD)),
    "capability of what is ambiguous": (RECOVERY + "ListAmbiguous", field(4, BAD)),
    "capability to reconcile": (RECOVERY + "Reconcile", field(2, BAD)),
    "key of a recovery": (RECOVERY + "Recover", field(4, BAD)),
    "evidence of a verdict": (RECOVERY + "ResolveAmbiguous", field(1, ACTION_ID.encode()) + field(5, BAD)),
    "reason to revoke": (APPROVAL + "RevokeDecision", field(1, ACTION_ID.encode()) + field(3, BAD)),
    "id of an approval": (APPROVAL + "GetApproval", field(1, BAD)),
    "requester of approvals": (APPROVAL + "ListApprovals", field(3, field(4, BAD))),
    "reason of one of several decisions": (APPROVAL + "BatchDecideApprovals", field(1, field(5, BAD))),
    "capability of watched approvals": (APPROVAL + "WatchApprovals", field(3, BAD)),
    "reason of a decision": (APPROVAL + "DecideApproval", field(1, ACTION_ID.encode()) + field(5, BAD)),
    "ticket of a decision": (
        APPROVAL + "DecideApproval",
        field(1, ACTION_ID.encode()) + field(6, field(1, BAD)),
    ),
    "id": (RUNTIME + "GetAction", field(1, BAD)),
    "reason": (RUNTIME + "CancelAction", field(1, ACTION_ID.encode()) + field(2, BAD)),
    "queue of many": (RUNTIME + "CancelActions", field(1, field(11, BAD))),
    "reason of many": (RUNTIME + "CancelActions", field(1, field(11, b"q")) + field(2, BAD)),
    "cursor": (RUNTIME + "WatchAction", field(1, ACTION_ID.encode()) + field(2, BAD)),
    "id to resume": (RUNTIME + "ResumeAction", field(1, BAD)),
    "cursor to resume": (RUNTIME + "ResumeActionStream", field(1, ACTION_ID.encode()) + field(2, BAD)),
    "cursor of a feed": (RUNTIME + "WatchEvents", field(1, BAD)),
    "page": (RUNTIME + "ListActions", field(2, BAD)),
    "requester": (RUNTIME + "ListActions", field(3, field(6, BAD))),
    "manifest": (CATALOG + "AdmitManifest", field(1, field(1, BAD))),
    "prefix": (CATALOG + "ListCapabilities", field(3, BAD)),
}


@pytest.mark.parametrize("case", NO_UTF8)
async def test_text_that_is_no_utf8_is_malformed(server: Served, client: Client, case: str) -> None:
    path, raw = NO_UTF8[case]
    async with server.unharmed():
        refused = await refusal(send_bytes(client.channel, path, raw, metadata=client.metadata))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        (RUNTIME + "Execute", field(1, ECHO + field(4, number(4, 99)))),
        (RUNTIME + "Execute", field(1, ECHO + field(4, number(6, 99)))),
        (RUNTIME + "Execute", field(1, ECHO + field(4, number(9, 99)))),
        (RUNTIME + "GetAction", field(1, ACTION_ID.encode()) + number(3, 99)),
        (RUNTIME + "ListActions", field(3, field(2, b"\x63"))),
        (RUNTIME + "ListActions", field(3, field(2, b"\x00"))),
        (RUNTIME + "ListActions", field(3, field(2, b"\x0b"))),
    ],
)
async def test_an_enum_of_nowhere_is_malformed(server: Served, client: Client, path: str, raw: bytes) -> None:
    async with server.unharmed():
        refused = await refusal(send_bytes(client.channel, path, raw, metadata=client.metadata))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)
    assert 1 <= len(refused.bad_requests[0].field_violations)


@pytest.mark.parametrize("path", ALL_PATHS)
@pytest.mark.parametrize(
    "raw", [b"\xff" * 9, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 10_000], ids=["tags", "length", "groups"]
)
async def test_garbage_is_malformed_on_every_rpc(
    server: Served, client: Client, path: str, raw: bytes
) -> None:
    refused = await refusal(send_bytes(client.channel, path, raw, metadata=client.metadata))
    assert (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST") == (refused.code, refused.reason)


def invocation(**changes: Any) -> pb.ExecuteRequest:
    fields = {"capability": "hostile.echo", "input_json": '{"text":"a"}'} | changes
    return pb.ExecuteRequest(invocation=action_pb2.Invocation(**fields))


def options(**changes: Any) -> pb.ExecuteRequest:
    return invocation(options=action_pb2.InvocationOptions(**changes))


def submission(**members: Any) -> pb.SubmitRequest:
    return pb.SubmitRequest(invocation=invocation().invocation, **members)


def redrive(**members: Any) -> recovery.RedriveRequest:
    selection = recovery.EndedSelection(action_ids=[ACTION_ID])
    return recovery.RedriveRequest(**({"selection": selection} | members))


def resolve(**members: Any) -> recovery.ResolveAmbiguousRequest:
    return recovery.ResolveAmbiguousRequest(
        **{
            "action_id": ACTION_ID,
            "verdict": recovery.VERDICT_DONE,
            "output_json": "1",
            "reason": "r",
            "evidence": "e",
            **members,
        }
    )


def decision(**members: Any) -> approvals.DecideApprovalRequest:
    whole: dict[str, Any] = {"approval_id": ACTION_ID, "digest": "0" * 64, "decision_id": "d"}
    return approvals.DecideApprovalRequest(verdict=decision_pb2.VOTE_VERDICT_DENY, **(whole | members))


def dead_letters(**members: Any) -> recovery.ListDeadLettersRequest:
    return recovery.ListDeadLettersRequest(filter=recovery.DeadLetterFilter(**members))


NUL = "a\x00b"
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
WITH_NUL: dict[str, tuple[str, Any]] = {
    "capability": ("Execute", invocation(capability=NUL)),
    "version": ("Execute", invocation(version=NUL)),
    "input": ("Execute", invocation(input_json='{"text":"\x00"}')),
    "key": ("Execute", options(idempotency_key=NUL)),
    "label name": ("Execute", options(labels={NUL: "v"})),
    "label value": ("Execute", options(labels={"n": NUL})),
    "id": ("GetAction", pb.GetActionRequest(action_id=NUL)),
    "key of one": (
        "GetAction",
        pb.GetActionRequest(key=pb.KeyRef(capability="hostile.order", idempotency_key=NUL)),
    ),
    "capability of a key": (
        "GetAction",
        pb.GetActionRequest(key=pb.KeyRef(capability=NUL, idempotency_key="k")),
    ),
    "cursor": ("WatchAction", pb.WatchActionRequest(action_id=ACTION_ID, after_cursor=NUL)),
    "cursor to resume": (
        "ResumeActionStream",
        pb.ResumeActionStreamRequest(action_id=ACTION_ID, after_cursor=NUL),
    ),
    "cursor of a feed": ("WatchEvents", pb.WatchEventsRequest(after_cursor=NUL)),
    "capability of a feed": ("WatchEvents", pb.WatchEventsRequest(filter=pb.EventFilter(capabilities=[NUL]))),
    "label of a feed": ("WatchEvents", pb.WatchEventsRequest(filter=pb.EventFilter(labels={NUL: NUL}))),
    "type in a feed": ("WatchEvents", pb.WatchEventsRequest(filter=pb.EventFilter(types=[NUL]))),
    "reason": ("CancelAction", pb.CancelActionRequest(action_id=ACTION_ID, reason=NUL)),
    "page": ("ListActions", pb.ListActionsRequest(page_token=NUL)),
    "manifest": ("GetManifest", catalog.GetManifestRequest(name=NUL)),
    "capability to withdraw": ("WithdrawCapability", catalog.WithdrawCapabilityRequest(name=NUL)),
    "reason to withdraw": (
        "WithdrawCapability",
        catalog.WithdrawCapabilityRequest(name="hostile.echo", reason=NUL),
    ),
    "capability read": ("GetCapability", catalog.GetCapabilityRequest(name=NUL)),
    "queue": ("Submit", submission(queue=NUL)),
    "submitted input": ("Submit", pb.SubmitRequest(invocation=invocation(input_json=NUL).invocation)),
    "tenant": ("ListQueues", operations_service_pb2.ListQueuesRequest(tenant=NUL)),
    "queue to pause": ("PauseQueue", operations_service_pb2.PauseQueueRequest(queue=NUL)),
    "reason to pause": ("PauseQueue", operations_service_pb2.PauseQueueRequest(queue="q", reason=NUL)),
    "queue to resume": ("ResumeQueue", operations_service_pb2.ResumeQueueRequest(queue=NUL)),
    "page of servers": ("ListServers", operations_service_pb2.ListServersRequest(page_token=NUL)),
    **deliveries.with_text(NUL),
    "tenant of dead letters": ("ListDeadLetters", recovery.ListDeadLettersRequest(tenant=NUL)),
    "capability of dead letters": ("ListDeadLetters", dead_letters(capabilities=[NUL])),
    "queue of dead letters": ("ListDeadLetters", dead_letters(queue=NUL)),
    "reason of dead letters": ("ListDeadLetters", dead_letters(reason=NUL)),
    "page of dead letters": ("ListDeadLetters", recovery.ListDeadLettersRequest(page_token=NUL)),
    "id to redrive": ("Redrive", redrive(selection=recovery.EndedSelection(action_ids=[NUL]))),
    "filter to redrive": (
        "Redrive",
        redrive(selection=recovery.EndedSelection(filter=dead_letters(queue=NUL).filter)),
    ),
    "reason to redrive": ("Redrive", redrive(reason=NUL)),
    "key of a redrive": ("Redrive", redrive(idempotency_key=NUL)),
    "tenant of what is ambiguous": ("ListAmbiguous", recovery.ListAmbiguousRequest(tenant=NUL)),
    "page of what is ambiguous": ("ListAmbiguous", recovery.ListAmbiguousRequest(page_token=NUL)),
    "id to resolve": ("ResolveAmbiguous", resolve(action_id=NUL)),
    "id to reconcile": ("Reconcile", recovery.ReconcileRequest(action_ids=[NUL])),
    "capability to reconcile": ("Reconcile", recovery.ReconcileRequest(capabilities=[NUL])),
    "tenant to recover": ("Recover", recovery.RecoverRequest(tenant=NUL)),
    "key of a recovery": ("Recover", recovery.RecoverRequest(idempotency_key=NUL)),
    "policies": (
        "ValidatePolicySet",
        policy.ValidatePolicySetRequest(policy_set=policy.PolicySet(name="p", cedar=NUL)),
    ),
    "name of policies": (
        "AdmitPolicySet",
        policy.AdmitPolicySetRequest(policy_set=policy.PolicySet(name=NUL)),
    ),
    "overlay of policies": (
        "DryRunPolicySet",
        policy.DryRunPolicySetRequest(
            policy_set=policy.PolicySet(name="p", overlays=[policy.PolicyOverlay(pattern=NUL)])
        ),
    ),
    "capability to run dry": (
        "DryRunPolicySet",
        policy.DryRunPolicySetRequest(policy_set=policy.PolicySet(name="p"), capabilities=[NUL]),
    ),
    "page of policies": ("ListPolicySets", policy.ListPolicySetsRequest(page_token=NUL)),
    "id to explain": ("ExplainDecision", policy.ExplainDecisionRequest(id=NUL)),
    "id of a report": ("GetReport", recovery.GetReportRequest(report_id=NUL)),
    "page of reports": ("ListReports", recovery.ListReportsRequest(page_token=NUL)),
    "id of an approval": ("GetApproval", approvals.GetApprovalRequest(approval_id=NUL)),
    "page of approvals": ("ListApprovals", approvals.ListApprovalsRequest(page_token=NUL)),
    "action of approvals": (
        "ListApprovals",
        approvals.ListApprovalsRequest(filter=approvals.ApprovalFilter(action_id=NUL)),
    ),
    "capability of approvals": (
        "ListApprovals",
        approvals.ListApprovalsRequest(filter=approvals.ApprovalFilter(capabilities=[NUL])),
    ),
    "requester of approvals": (
        "ListApprovals",
        approvals.ListApprovalsRequest(filter=approvals.ApprovalFilter(requester=NUL)),
    ),
    "approval to decide": ("DecideApproval", decision(approval_id=NUL)),
    "digest of a decision": ("DecideApproval", decision(digest=NUL)),
    "id of a decision": ("DecideApproval", decision(decision_id=NUL)),
    "reason of a decision": ("DecideApproval", decision(reason=NUL)),
    "ticket of a decision": (
        "DecideApproval",
        decision(evidence=decision_pb2.DecisionEvidence(ticket=NUL)),
    ),
    "attachment of a decision": (
        "DecideApproval",
        decision(evidence=decision_pb2.DecisionEvidence(attachments=[NUL])),
    ),
    "approval to revoke": ("RevokeDecision", approvals.RevokeDecisionRequest(approval_id=NUL)),
    "decision to revoke": (
        "RevokeDecision",
        approvals.RevokeDecisionRequest(approval_id=ACTION_ID, decision_id=NUL),
    ),
    "reason to revoke": (
        "RevokeDecision",
        approvals.RevokeDecisionRequest(approval_id=ACTION_ID, decision_id="d", reason=NUL),
    ),
    "cursor of approvals": ("WatchApprovals", approvals.WatchApprovalsRequest(after_cursor=NUL)),
    "capability of watched approvals": (
        "WatchApprovals",
        approvals.WatchApprovalsRequest(capabilities=[NUL]),
    ),
    "answer": (
        "ProvideInput",
        approvals.ProvideInputRequest(
            approval_id=ACTION_ID, digest="0" * 64, answer_json=NUL, decision_id="d"
        ),
    ),
    "approval to claim": ("ClaimApproval", approvals.ClaimApprovalRequest(approval_id=NUL)),
    "approval to release": ("ReleaseApproval", approvals.ReleaseApprovalRequest(approval_id=NUL)),
    "input suggested": ("DecideApproval", decision(suggested_input_json=NUL)),
    "output of a verdict": ("ResolveAmbiguous", resolve(output_json=NUL)),
    "reason of a verdict": ("ResolveAmbiguous", resolve(reason=NUL)),
    "evidence of a verdict": ("ResolveAmbiguous", resolve(evidence=NUL)),
    "version read": ("GetCapability", catalog.GetCapabilityRequest(name="hostile.echo", version=NUL)),
}


@pytest.mark.parametrize("case", WITH_NUL)
async def test_nul_is_refused_wherever_it_is_said(server: Served, client: Client, case: str) -> None:
    rpc, request = WITH_NUL[case]
    async with server.unharmed():
        refused = await refusal(client.call(rpc, request))
    assert refused.code in REFUSED
    assert refused.reason


@pytest.mark.parametrize(
    ("rpc", "request_"),
    [
        ("ListActions", pb.ListActionsRequest(filter=pb.ActionFilter(requester=NUL))),
        ("ListActions", pb.ListActionsRequest(filter=pb.ActionFilter(capabilities=[NUL]))),
        ("ListActions", pb.ListActionsRequest(filter=pb.ActionFilter(labels={NUL: NUL}))),
        ("CancelActions", pb.CancelActionsRequest(filter=pb.ActionFilter(requester=NUL))),
        ("CancelActions", pb.CancelActionsRequest(filter=pb.ActionFilter(labels={"%": "_"}))),
        ("ListCapabilities", catalog.ListCapabilitiesRequest(name_prefix=NUL)),
        ("ListCapabilities", catalog.ListCapabilitiesRequest(name_prefix="%_\\")),
        ("ListActions", pb.ListActionsRequest(filter=pb.ActionFilter(labels={"%": "_"}))),
        ("ListAmbiguous", recovery.ListAmbiguousRequest(capabilities=[NUL])),
        ("ListAmbiguous", recovery.ListAmbiguousRequest(capabilities=["%_\\", "'; drop table actions; --"])),
        ("ListDeadLetters", dead_letters(queue="%", reason="_")),
        ("ListDeadLetters", dead_letters(capabilities=["%_\\", "'; drop table dead_letters; --"])),
        ("Redrive", redrive(selection=recovery.EndedSelection(filter=dead_letters(reason="%").filter))),
    ],
)
async def test_a_search_for_what_cannot_be_finds_nothing_or_is_refused(
    server: Served, client: Client, rpc: str, request_: Any
) -> None:
    async with server.unharmed():
        try:
            found = await client.call(rpc, request_)
        except grpc.aio.AioRpcError as error:
            assert grpc.StatusCode.INVALID_ARGUMENT == error.code()  # noqa: PT017
        else:
            assert b"" == found.SerializeToString()
