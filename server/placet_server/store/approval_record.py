"""From rows to approvals, and to the votes on them."""

from __future__ import annotations

from asyncpg import Record

from placet_server.model.approval_text import parse_terms
from placet_server.model.decision import Approval, ApprovalState, Decision, VoteVerdict
from placet_server.model.wait import WaitKind


def read_approval(record: Record) -> Approval:
    predecessor_id = record["predecessor_id"]
    return Approval(
        tenant=record["tenant"],
        approval_id=str(record["approval_id"]),
        action_id=str(record["action_id"]),
        kind=WaitKind(record["kind"]),
        state=ApprovalState(record["state"]),
        digest=record["digest"],
        terms=parse_terms(record["terms"]),
        capability=record["capability"],
        title=record["title"],
        summary=record["summary"],
        predecessor_id=None if predecessor_id is None else str(predecessor_id),
        difference=record["difference"],
        create_time_us=record["create_time_us"],
        expire_time_us=record["expire_time_us"],
        escalate_time_us=record["escalate_time_us"],
        escalated=record["escalated"],
        consume_time_us=record["consume_time_us"],
        end_time_us=record["end_time_us"],
        revision=record["revision"],
        claimed_by=record["claimed_by"] or "",
        claim_expire_time_us=record["claim_expire_time_us"],
    )


def read_decision(record: Record) -> Decision:
    return Decision(
        decision_id=record["decision_id"],
        voter=record["voter"],
        verdict=VoteVerdict(record["verdict"]),
        reason=record["reason"],
        ticket=record["ticket"],
        attachments=tuple(record["attachments"]),
        suggested_input_json=record["suggested_input"],
        answer_json=record["answer"],
        roles=tuple(record["roles"]),
        groups=tuple(record["groups"]),
        create_time_us=record["create_time_us"],
        revoke_time_us=record["revoke_time_us"],
    )
