"""No text of an unexpected error leaves the server, no call is left without a status."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest

from placet.v1 import (
    action_pb2,
    approval_service_pb2,
    ask_pb2,
    decision_pb2,
    operations_service_pb2,
    policy_service_pb2,
    recovery_service_pb2,
    session_service_pb2,
)
from placet.v1 import runtime_service_pb2 as pb
from placet_server.model.ending_errors import DeadlineExceeded, EffectAmbiguous, HandlerFailed
from placet_server.model.errors import Code, StoreUnavailable, WaitExpired
from placet_server.model.outcome import Outcome, OutcomeKind, RetryAdvice
from tests.rpc.support import ACTION_ID, ALL_PATHS, Setup, bearer, refusal, send_bytes, serving

SECRET = "postgresql://root:hunter2@db"
INVOCATION = action_pb2.Invocation(capability="a.b", input_json="{}")
SET = policy_service_pb2.PolicySet(name="s")
DECISION = approval_service_pb2.DecideApprovalRequest(
    approval_id=ACTION_ID,
    digest="0" * 64,
    verdict=decision_pb2.VOTE_VERDICT_APPROVE,
    decision_id="d",
)
REQUESTS: dict[str, bytes] = {
    "Execute": pb.ExecuteRequest(invocation=INVOCATION).SerializeToString(),
    "ExecuteStream": pb.ExecuteStreamRequest(invocation=INVOCATION).SerializeToString(),
    "Submit": pb.SubmitRequest(invocation=INVOCATION).SerializeToString(),
    "SubmitBatch": pb.SubmitBatchRequest(items=[pb.SubmitRequest(invocation=INVOCATION)]).SerializeToString(),
    "Ask": pb.AskRequest(agent="a.b", parts=[ask_pb2.MessagePart(text="x")]).SerializeToString(),
    "AskStream": pb.AskStreamRequest(
        ask=pb.AskRequest(agent="a.b", parts=[ask_pb2.MessagePart(text="x")])
    ).SerializeToString(),
    "ListTurns": pb.ListTurnsRequest(action_id=ACTION_ID).SerializeToString(),
    "PauseQueue": operations_service_pb2.PauseQueueRequest(queue="q").SerializeToString(),
    "ResumeQueue": operations_service_pb2.ResumeQueueRequest(queue="q").SerializeToString(),
    "GetAction": pb.GetActionRequest(action_id=ACTION_ID).SerializeToString(),
    "WaitAction": pb.WaitActionRequest(action_id=ACTION_ID).SerializeToString(),
    "ResumeAction": pb.ResumeActionRequest(action_id=ACTION_ID).SerializeToString(),
    "ResumeActionStream": pb.ResumeActionStreamRequest(action_id=ACTION_ID).SerializeToString(),
    "WatchAction": pb.WatchActionRequest(action_id=ACTION_ID).SerializeToString(),
    "CancelAction": pb.CancelActionRequest(action_id=ACTION_ID).SerializeToString(),
    "CancelActions": pb.CancelActionsRequest(filter=pb.ActionFilter(queue="q")).SerializeToString(),
    "Redrive": recovery_service_pb2.RedriveRequest(
        selection=recovery_service_pb2.EndedSelection(action_ids=[ACTION_ID])
    ).SerializeToString(),
    "ResolveAmbiguous": recovery_service_pb2.ResolveAmbiguousRequest(
        action_id=ACTION_ID, verdict=recovery_service_pb2.VERDICT_NOT_DONE, reason="r", evidence="e"
    ).SerializeToString(),
    "GetReport": recovery_service_pb2.GetReportRequest(report_id=ACTION_ID).SerializeToString(),
    "ValidatePolicySet": policy_service_pb2.ValidatePolicySetRequest(policy_set=SET).SerializeToString(),
    "AdmitPolicySet": policy_service_pb2.AdmitPolicySetRequest(policy_set=SET).SerializeToString(),
    "DryRunPolicySet": policy_service_pb2.DryRunPolicySetRequest(policy_set=SET).SerializeToString(),
    "ExplainDecision": policy_service_pb2.ExplainDecisionRequest(id=ACTION_ID).SerializeToString(),
    "GetApproval": approval_service_pb2.GetApprovalRequest(approval_id=ACTION_ID).SerializeToString(),
    "DecideApproval": DECISION.SerializeToString(),
    "BatchDecideApprovals": approval_service_pb2.BatchDecideApprovalsRequest(
        items=[DECISION]
    ).SerializeToString(),
    "RevokeDecision": approval_service_pb2.RevokeDecisionRequest(
        approval_id=ACTION_ID, decision_id="d"
    ).SerializeToString(),
    "ProvideInput": approval_service_pb2.ProvideInputRequest(
        approval_id=ACTION_ID, digest="0" * 64, answer_json="{}", decision_id="d"
    ).SerializeToString(),
    "ClaimApproval": approval_service_pb2.ClaimApprovalRequest(approval_id=ACTION_ID).SerializeToString(),
    "ReleaseApproval": approval_service_pb2.ReleaseApprovalRequest(approval_id=ACTION_ID).SerializeToString(),
    "GetDelivery": operations_service_pb2.GetDeliveryRequest(delivery_id=ACTION_ID).SerializeToString(),
    "RedeliverCallback": operations_service_pb2.RedeliverCallbackRequest(
        delivery_id=ACTION_ID
    ).SerializeToString(),
    "GetSession": session_service_pb2.GetSessionRequest(session_id=ACTION_ID).SerializeToString(),
    "ListMessages": session_service_pb2.ListMessagesRequest(session_id=ACTION_ID).SerializeToString(),
    "ResumeSession": session_service_pb2.ResumeSessionRequest(
        session_id=ACTION_ID, resume_token="t"
    ).SerializeToString(),
    "CloseSession": session_service_pb2.CloseSessionRequest(session_id=ACTION_ID).SerializeToString(),
    "GetManifest": b"\x0a\x01s",
    "GetCapability": b"\x0a\x01s",
    "WithdrawCapability": b"\x0a\x01s",
}


def request_of(path: str) -> bytes:
    return REQUESTS.get(path.rsplit("/", 1)[1], b"")


WELL_FORMED = [path for path in ALL_PATHS if not path.endswith("/AdmitManifest")]


@pytest.mark.parametrize("path", WELL_FORMED)
async def test_an_unexpected_error_is_logged_whole_and_sent_without_its_text(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(rpc: Any) -> None:
        raise RuntimeError(SECRET)

    async with serving(Setup(behaviour=fail)) as running:
        refused = await refusal(send_bytes(running.channel, path, request_of(path)))
    assert (grpc.StatusCode.INTERNAL, "INTERNAL") == (refused.code, refused.reason)
    assert SECRET not in repr(refused.trailers) + refused.message
    incident_id = refused.infos[0].metadata["incident_id"]
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [incident_id] == [record.__dict__["incident_id"] for record in logged]
    assert logged[0].exc_info is not None
    assert SECRET in str(logged[0].exc_info[1])


@pytest.mark.parametrize("path", WELL_FORMED)
async def test_a_cancelled_error_from_within_still_gives_a_status_within_a_second(path: str) -> None:
    async def fail(rpc: Any) -> None:
        raise asyncio.CancelledError

    async with serving(Setup(behaviour=fail)) as running:
        await running.channel.channel_ready()
        async with asyncio.timeout(1):
            refused = await refusal(send_bytes(running.channel, path, request_of(path), seconds=None))
    assert (grpc.StatusCode.INTERNAL, "INTERNAL") == (refused.code, refused.reason)


async def test_a_cancelled_call_cancels_its_handler_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(rpc: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with serving(Setup(behaviour=wait)) as running:
        call = running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer())
        await entered.wait()
        call.cancel()
        async with asyncio.timeout(5):
            await cancelled.wait()
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_group_of_errors_is_masked_as_well() -> None:
    async def fail(rpc: Any) -> None:
        raise ExceptionGroup(SECRET, [ValueError(SECRET)])

    async with serving(Setup(behaviour=fail)) as running:
        refused = await refusal(running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer()))
    assert "INTERNAL" == refused.reason
    assert SECRET not in repr(refused.trailers) + refused.message


async def test_an_error_while_an_error_is_put_into_words_is_masked_as_well() -> None:
    class Broken(DeadlineExceeded):
        def text(self) -> str:
            raise RuntimeError(SECRET)

    async def fail(rpc: Any) -> None:
        raise Broken()

    async with serving(Setup(behaviour=fail)) as running:
        refused = await refusal(running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer()))
    assert "INTERNAL" == refused.reason


async def test_an_outage_of_the_store_is_told_without_its_address_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(rpc: Any) -> None:
        raise StoreUnavailable(detail=SECRET)

    async with serving(Setup(behaviour=fail)) as running:
        for _ in range(9):
            await refusal(running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer()))
        refused = await refusal(running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer()))
    assert "STORE_UNAVAILABLE" == refused.reason
    assert SECRET not in repr(refused.trailers) + refused.message
    assert 1 == len([record for record in caplog.records if SECRET in record.getMessage()])


def outcome(kind: OutcomeKind) -> Outcome:
    return Outcome(
        kind=kind, reason="EFFECT_AMBIGUOUS", action_id=ACTION_ID, retry_advice=RetryAdvice.AFTER_WAIT
    )


@pytest.mark.parametrize(
    ("error", "kind", "pushback"),
    [
        (EffectAmbiguous(cause="TIMEOUT"), OutcomeKind.AMBIGUOUS, "-1"),
        (HandlerFailed(failure_code="declined", category="PERMANENT"), OutcomeKind.FAILED, "-1"),
        (WaitExpired(state="RUNNING"), OutcomeKind.PENDING, None),
        (
            HandlerFailed(
                code=Code.UNAVAILABLE, failure_code="busy", category="TEMPORARY", retry_delay_seconds=2
            ),
            OutcomeKind.FAILED,
            None,
        ),
    ],
    ids=["ambiguous", "failed", "pending", "key released"],
)
async def test_a_recorded_outcome_is_told_in_details_and_trailers_and_not_to_be_retried(
    error: Any, kind: OutcomeKind, pushback: str | None
) -> None:
    async def fail(rpc: Any) -> None:
        error.outcome = outcome(kind)
        raise error

    async with serving(Setup(behaviour=fail)) as running:
        refused = await refusal(running.runtime.GetCaller(pb.GetCallerRequest(), metadata=bearer()))
    assert [ACTION_ID] == [told.action_id for told in refused.outcomes]
    assert ACTION_ID == refused.trailers["placet-action-id"]
    assert kind.value == refused.trailers["placet-outcome"]
    assert error.reason == refused.trailers["placet-reason"]
    assert pushback == refused.trailers.get("grpc-retry-pushback-ms")
