"""Approvals and votes to messages, and what a voter says back."""

from __future__ import annotations

from placet.v1 import approval_service_pb2 as pb
from placet.v1 import decision_pb2
from placet_server.core.decision.decide import DecideCommand
from placet_server.core.decision.view import ApprovalView
from placet_server.model.capability import Capability
from placet_server.model.decision import ApprovalQuery, ApprovalState, Decision, VoteVerdict
from placet_server.model.query import PAGE_SIZE_DEFAULT
from placet_server.rpc.convert.approval import terms_message
from placet_server.rpc.convert.caller import requester_message
from placet_server.rpc.convert.capability import EFFECT, HAZARD, RISK
from placet_server.rpc.convert.enumeration import WAIT_KIND, members, numbers
from placet_server.rpc.convert.time import set_timestamp

APPROVAL_STATE = numbers(decision_pb2.ApprovalState, "APPROVAL_STATE_", ApprovalState)
APPROVAL_STATE_MEMBER = members(decision_pb2.ApprovalState, "APPROVAL_STATE_", ApprovalState)
VOTE_VERDICT = numbers(decision_pb2.VoteVerdict, "VOTE_VERDICT_", VoteVerdict)
VOTE_VERDICT_MEMBER = members(decision_pb2.VoteVerdict, "VOTE_VERDICT_", VoteVerdict)


def approval_message(view: ApprovalView) -> decision_pb2.Approval:
    """Whole, if the view has looked at the input; else as in lists."""
    approval, action = view.approval, view.action
    message = decision_pb2.Approval(
        approval_id=approval.approval_id,
        action_id=approval.action_id,
        kind=WAIT_KIND[approval.kind],
        state=APPROVAL_STATE[approval.state],
        digest=approval.digest,
        capability=action.capability,
        version=action.version,
        contract_digest=action.contract_digest,
        input_digest=action.input_digest,
        title=approval.title,
        summary=approval.summary,
        requester=requester_message(action.requester),
        labels=action.labels,
        terms=terms_message(approval.terms),
        missing=view.missing,
        eligibility=decision_pb2.Eligibility(eligible=not view.problem, problem=view.problem),
        predecessor_id=approval.predecessor_id or "",
        difference=approval.difference,
        escalated=approval.escalated,
        claimed_by=approval.claimed_by,
    )
    if view.input_json is not None:
        message.input_json = view.input_json
        message.hidden_paths.extend(view.hidden_paths)
        message.decisions.extend(map(_decision_message, view.decisions))
    if view.capability is not None:
        message.contract.CopyFrom(_facts_message(view.capability))
    _set_times(message, view)
    return message


def query_of(request: pb.ListApprovalsRequest, after: tuple[int, str] | None) -> ApprovalQuery:
    wanted = request.filter
    return ApprovalQuery(
        states=tuple(APPROVAL_STATE_MEMBER[number] for number in wanted.states),
        action_id=wanted.action_id,
        capabilities=tuple(wanted.capabilities),
        requester=wanted.requester,
        eligible_only=wanted.eligible_only,
        page_size=request.page_size or PAGE_SIZE_DEFAULT,
        after=after,
    )


def decide_of(request: pb.DecideApprovalRequest) -> DecideCommand:
    """The message has passed validation."""
    return DecideCommand(
        approval_id=request.approval_id,
        digest=request.digest,
        verdict=VOTE_VERDICT_MEMBER[request.verdict],
        decision_id=request.decision_id,
        reason=request.reason,
        ticket=request.evidence.ticket,
        attachments=tuple(request.evidence.attachments),
        suggested_input_json=request.suggested_input_json,
    )


def answer_of(request: pb.ProvideInputRequest) -> DecideCommand:
    """The message has passed validation."""
    return DecideCommand(
        approval_id=request.approval_id,
        digest=request.digest,
        verdict=VoteVerdict.ANSWER,
        decision_id=request.decision_id,
        reason=request.reason,
        answer_json=request.answer_json,
    )


def _set_times(message: decision_pb2.Approval, view: ApprovalView) -> None:
    approval = view.approval
    set_timestamp(message.create_time, approval.create_time_us)
    set_timestamp(message.expire_time, approval.expire_time_us)
    if approval.escalate_time_us is not None:
        set_timestamp(message.escalate_time, approval.escalate_time_us)
    if approval.consume_time_us is not None:
        set_timestamp(message.consume_time, approval.consume_time_us)
    if approval.claim_expire_time_us is not None:
        set_timestamp(message.claim_expire_time, approval.claim_expire_time_us)
    if approval.end_time_us is not None:
        set_timestamp(message.end_time, approval.end_time_us)


def _decision_message(decision: Decision) -> decision_pb2.Decision:
    message = decision_pb2.Decision(
        decision_id=decision.decision_id,
        voter=decision.voter,
        verdict=VOTE_VERDICT[decision.verdict],
        reason=decision.reason,
        suggested_input_json=decision.suggested_input_json or "",
        answer_json=decision.answer_json or "",
    )
    if decision.ticket or decision.attachments:
        message.evidence.ticket = decision.ticket
        message.evidence.attachments.extend(decision.attachments)
    set_timestamp(message.create_time, decision.create_time_us)
    if decision.revoke_time_us is not None:
        set_timestamp(message.revoke_time, decision.revoke_time_us)
    return message


def _facts_message(capability: Capability) -> decision_pb2.ContractFacts:
    contract = capability.contract
    return decision_pb2.ContractFacts(
        effect=EFFECT[contract.effect],
        hazards=sorted(HAZARD[hazard] for hazard in contract.hazards),
        risk=RISK[contract.risk],
        description=capability.presentation.description,
    )
